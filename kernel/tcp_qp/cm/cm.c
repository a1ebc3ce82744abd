// SPDX-License-Identifier: GPL-2.0
/* What iw_cm calls: connect, accept, reject, and a QP's references. */
#include <net/ip.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <rdma/rdma_cm.h>
#include "cm/cm.h"

/* ---- QPs ---- */

/*
 * iw_cm takes its reference in two calls, get and add, with a gap between them
 * in which the QP may be destroyed.  So it is taken in the first one.
 */
struct ib_qp *tqp_cm_get_qp(struct ib_device *ib, int qpn)
{
	struct tqp_qp *qp = tqp_qp_lookup(to_tqp_device(ib), qpn);

	return qp ? &qp->ib : NULL;
}

void tqp_cm_add_ref(struct ib_qp *ibqp)
{
}

void tqp_cm_rem_ref(struct ib_qp *ibqp)
{
	tqp_qp_put(to_tqp_qp(ibqp));
}

/* ---- connect ---- */

static int tqp_param_check(const struct iw_cm_conn_param *param)
{
	if (param->private_data_len > TQP_HELLO_PRIVATE_MAX_BYTES ||
	    param->ird > TQP_HELLO_DEPTH_MAX || param->ord > TQP_HELLO_DEPTH_MAX)
		return -EINVAL;
	return 0;
}

static void tqp_ep_write_hello(struct tqp_ep *ep, enum tqp_hello_kind kind, u8 flags,
			       const void *private_data, u16 bytes)
{
	struct tqp_hello hello = {
		.flags = flags,
		.private_bytes = bytes,
		.ird = ep->ird,
		.ord = ep->ord,
	};

	ep->hs.tx_bytes = tqp_hello_build(ep->hs.tx, kind, &hello, private_data);
}

static int tqp_address_bytes(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
						sizeof(struct sockaddr_in);
}

static void tqp_forget_port(struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET6)
		((struct sockaddr_in6 *)address)->sin6_port = 0;
	else
		((struct sockaddr_in *)address)->sin_port = 0;
}

/*
 * iw_cm's calls have no namespace.  Their one user is rdma_cm, whose ids have the
 * one they were made in, as sockets do; a caller's own would be that of whoever
 * adds a device while a wildcard listens.  Valid only inside of iw_cm's call.
 */
struct net *tqp_cm_net(const struct iw_cm_id *cm_id)
{
	const struct rdma_cm_id *id = cm_id->context;	/* it begins struct rdma_id_private */

	if (WARN_ON_ONCE(!id || id->device != cm_id->device))
		return NULL;
	return id->route.addr.dev_addr.net;
}

int tqp_cm_socket(struct net *net, const struct iw_cm_id *cm_id, struct socket **sock)
{
	int family = cm_id->m_local_addr.ss_family, err;

	if (family != AF_INET && family != AF_INET6)
		return -EAFNOSUPPORT;
	/* Not a "kernel" socket: it must keep its namespace, and retransmit its FIN. */
	err = __sock_create(net, family, SOCK_STREAM, IPPROTO_TCP, sock, 0);
	if (err)
		return err;
	(*sock)->sk->sk_use_task_frag = false;
	sock_set_reuseaddr((*sock)->sk);
	if (cm_id->tos_set)
		tqp_hello_set_tos(*sock, cm_id->tos);
	return 0;
}

/* Who connects makes the first himself; the later ones, of the work, are like it. */
static int tqp_ep_ask(struct tqp_ep *ep)
{
	struct sock *sk = ep->hs.sock->sk;

	if (ep->asked)
		return tqp_asker_give(&ep->asker, sk);
	tqp_asker_get(&ep->asker, sk);
	ep->asked = true;
	return 0;
}

static int tqp_ep_connect_from(struct tqp_ep *ep, const struct sockaddr_storage *from)
{
	const struct iw_cm_id *cm_id = ep->cm_id;
	struct sockaddr_storage to = cm_id->m_remote_addr;
	int err = tqp_cm_socket(ep->net, cm_id, &ep->hs.sock);

	if (err)
		return err;
	err = tqp_ep_ask(ep);
	if (err)
		goto release;
	err = kernel_bind(ep->hs.sock, (struct sockaddr_unsized *)from, tqp_address_bytes(from));
	if (err)
		goto release;
	tqp_hello_install(&ep->hs, ep->hs.sock->sk->sk_data_ready);
	err = kernel_connect(ep->hs.sock, (struct sockaddr_unsized *)&to, tqp_address_bytes(&to), O_NONBLOCK);
	if (!err || err == -EINPROGRESS)
		return 0;
release:
	tqp_hello_release(&ep->hs, false);
	return err;
}

/*
 * rdma_cm chose the port among its own; an ordinary socket may have it, now
 * or in TIME_WAIT.  Then any other will do: nobody looks at it.
 */
int tqp_ep_connect(struct tqp_ep *ep)
{
	struct sockaddr_storage from = ep->cm_id->m_local_addr;
	int err = tqp_ep_connect_from(ep, &from);

	lockdep_assert_held(&ep->mutex);
	if (err != -EADDRINUSE && err != -EADDRNOTAVAIL)
		return err;
	tqp_forget_port(&from);
	return tqp_ep_connect_from(ep, &from);
}

int tqp_cm_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	struct tqp_device *dev = to_tqp_device(cm_id->device);
	struct net *net = tqp_cm_net(cm_id);
	struct tqp_qp *qp;
	struct tqp_ep *ep;
	int err = tqp_param_check(param);

	if (err)
		return err;
	if (!net || !tqp_device_serves(dev, net))
		return -ENETUNREACH;
	ep = tqp_ep_create(dev, TQP_EP_CONNECTING);
	if (!ep)
		return -ENOMEM;
	ep->ird = min_t(u32, param->ird, TQP_CM_DEPTH_MAX);
	ep->ord = min_t(u32, param->ord, TQP_CM_DEPTH_MAX);
	ep->retry_ms = TQP_CM_REFUSED_FIRST_MS;
	tqp_ep_write_hello(ep, TQP_HELLO_REQUEST, 0, param->private_data, param->private_data_len);
	ep->net = get_net(net);
	cm_id->add_ref(cm_id);
	ep->cm_id = cm_id;
	/* nothing but the device's end wakes it before it connects */
	qp = tqp_ep_claim(ep, param->qpn);
	err = PTR_ERR_OR_ZERO(qp);
	if (!err) {
		ep->qp = qp;
		err = tqp_ep_connect(ep);
	}
	if (err) {
		tqp_ep_close(ep, true);		/* no event: iw_cm hears it from us */
	} else {
		tqp_count(dev, TQP_C_cm_connects, 1);
		tqp_ep_deadline(ep, TQP_CM_CONNECT_MS);
		tqp_ep_wake(ep);
	}
	mutex_unlock(&ep->mutex);
	tqp_ep_put(ep);
	return err;
}

/* ---- accept and reject ---- */

/* The request behind @cm_id, locked, or NULL if it is no more. */
static struct tqp_ep *tqp_cm_requested(const struct iw_cm_id *cm_id)
{
	u32 id = (uintptr_t)cm_id->provider_data;
	struct tqp_ep *ep = tqp_ep_find(to_tqp_device(cm_id->device), id);

	if (!ep)
		return NULL;
	mutex_lock(&ep->mutex);
	if (ep->state == TQP_EP_REQUESTED)
		return ep;
	mutex_unlock(&ep->mutex);
	tqp_ep_put(ep);
	return NULL;
}

/* The works of an ep that waits for its QP must not wait, too: they are everybody's workers. */
static int tqp_ep_claim_unlocked(struct tqp_ep *ep, u32 qpn)
{
	struct tqp_qp *qp;

	mutex_unlock(&ep->mutex);
	qp = tqp_ep_claim(ep, qpn);
	mutex_lock(&ep->mutex);
	if (IS_ERR(qp))
		return PTR_ERR(qp);
	if (ep->state != TQP_EP_REQUESTED) {	/* it has ended meanwhile */
		tqp_ep_unclaim(ep, qp);
		return -ECONNRESET;
	}
	ep->qp = qp;
	return 0;
}

static int tqp_ep_accept(struct tqp_ep *ep, const struct iw_cm_conn_param *param)
{
	struct net *net = tqp_cm_net(ep->cm_id);
	int err = tqp_param_check(param);

	if (err)
		return err;
	/* the request came to a listener, and its namespace need not be the caller's any more */
	if (!net || !net_eq(net, sock_net(ep->hs.sock->sk)) || !tqp_device_serves(ep->dev, net))
		return -ENETUNREACH;
	err = tqp_ep_claim_unlocked(ep, param->qpn);
	if (err)
		return err;
	ep->ird = min_t(u32, param->ird, TQP_CM_DEPTH_MAX);
	ep->ord = min3(param->ord, (u32)ep->hs.hello.ird, (u32)TQP_CM_DEPTH_MAX);
	tqp_ep_write_hello(ep, TQP_HELLO_REPLY, 0, param->private_data, param->private_data_len);
	err = tqp_hello_send(&ep->hs);
	return err ?: tqp_ep_attach(ep);
}

int tqp_cm_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	struct tqp_ep *ep = tqp_cm_requested(cm_id);
	int err;

	if (!ep)
		return -ECONNRESET;
	cm_id->add_ref(cm_id);
	ep->cm_id = cm_id;
	err = tqp_ep_accept(ep, param);
	if (err) {
		tqp_ep_close(ep, true);
	} else {
		tqp_ep_count(ep, TQP_C_cm_accepted, 1);
		tqp_ep_wake(ep);
	}
	mutex_unlock(&ep->mutex);
	tqp_ep_put(ep);
	return err;
}

int tqp_cm_reject(struct iw_cm_id *cm_id, const void *private_data, u8 bytes)
{
	struct tqp_ep *ep = tqp_cm_requested(cm_id);

	if (!ep)
		return -ECONNRESET;
	tqp_ep_count(ep, TQP_C_cm_rejected, 1);
	tqp_ep_write_hello(ep, TQP_HELLO_REPLY, TQP_HELLO_F_REJECT, private_data, bytes);
	tqp_hello_send(&ep->hs);
	tqp_ep_close(ep, false);
	mutex_unlock(&ep->mutex);
	tqp_ep_put(ep);
	return 0;
}
