// SPDX-License-Identifier: GPL-2.0
/* UD queue pairs: their sockets, states and ends. */
#include <linux/net.h>
#include <linux/nsproxy.h>
#include <net/ip.h>
#include <net/sock.h>
#include "ud/ud.h"

/* ---- the socket to send from ---- */

/* Its port was chosen by the stack; whoever writes there is no peer of ours. */
static int tqp_ud_stray(struct sock *sk, struct sk_buff *skb)
{
	kfree_skb(skb);
	return 0;
}

static void tqp_ud_write_space(struct sock *sk)
{
	struct tqp_ud *ud;

	smp_mb();	/* pairs with tqp_ud_transmit() */
	read_lock_bh(&sk->sk_callback_lock);
	ud = sk->sk_user_data;
	if (ud && READ_ONCE(ud->blocked) && sock_writeable(sk))
		queue_work(tqp_wq, &ud->work);
	read_unlock_bh(&sk->sk_callback_lock);
}

/*
 * Not a "kernel" socket: it keeps the namespace, and what it has under way is accounted to
 * who made it.  One for each QP, so that none fills another's send buffer.
 */
static int tqp_ud_socket(struct tqp_ud *ud, struct net *net)
{
	struct sock *sk;
	int ret;

	ret = __sock_create(net, AF_INET6, SOCK_DGRAM, IPPROTO_UDP, &ud->sock, 0);
	if (ret == -EAFNOSUPPORT)	/* ipv6.disable=1 */
		ret = __sock_create(net, AF_INET, SOCK_DGRAM, IPPROTO_UDP, &ud->sock, 0);
	if (ret)
		return ret;
	sk = ud->sock->sk;
	sk->sk_ipv6only = false;
	sk->sk_use_task_frag = false;
	ip_sock_set_mtu_discover(sk, IP_PMTUDISC_DONT);	/* a narrow path costs fragments, not messages */
	tqp_ud_encap(ud->sock, tqp_ud_stray);
	write_lock_bh(&sk->sk_callback_lock);
	ud->saved_write_space = sk->sk_write_space;
	sk->sk_user_data = ud;
	WRITE_ONCE(sk->sk_write_space, tqp_ud_write_space);
	write_unlock_bh(&sk->sk_callback_lock);
	return 0;
}

/* Nothing queues the work from here on. */
static void tqp_ud_socket_quiet(struct tqp_ud *ud)
{
	struct sock *sk = ud->sock->sk;

	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_user_data = NULL;
	WRITE_ONCE(sk->sk_write_space, ud->saved_write_space);
	write_unlock_bh(&sk->sk_callback_lock);
}

/* ---- the end ---- */

/* From here on datagrams come, or nobody but who holds qp->mutex touches the receive queue. */
static void tqp_ud_set_receiving(struct tqp_ud *ud, bool receiving)
{
	spin_lock_bh(&ud->lock);
	ud->receiving = receiving && !ud->failed;
	if (!receiving)
		ud->failed = false;	/* what it asks for is being done, or was undone by a reset */
	spin_unlock_bh(&ud->lock);
}

/* Into ERR: all that is posted completes. */
static void tqp_ud_close(struct tqp_qp *qp)
{
	bool moved;

	lockdep_assert_held(&qp->mutex);
	tqp_ud_set_receiving(qp->ud, false);
	moved = tqp_qp_error(qp, -1);
	tqp_qp_flush(qp);
	if (moved && qp->srq)
		tqp_qp_raise(qp, IB_EVENT_QP_LAST_WQE_REACHED);
}

/* Empty: completions already made stay in their CQs. */
static void tqp_ud_discard(struct tqp_qp *qp)
{
	lockdep_assert_held(&qp->mutex);
	tqp_ring_discard(qp->sq);
	if (qp->rq)
		tqp_ring_discard(qp->rq);
}

/* ---- create and destroy ---- */

static bool tqp_ud_take_failed(struct tqp_ud *ud)
{
	bool failed;

	spin_lock_bh(&ud->lock);
	failed = ud->failed;
	ud->failed = false;
	spin_unlock_bh(&ud->lock);
	return failed;
}

static void tqp_ud_work(struct work_struct *work)
{
	struct tqp_ud *ud = container_of(work, struct tqp_ud, work);
	struct tqp_qp *qp = ud->qp;	/* a destroy waits for us before it parts them */

	mutex_lock(&qp->mutex);
	if (tqp_ud_take_failed(ud))
		tqp_ud_close(qp);
	else
		tqp_ud_send(qp);
	mutex_unlock(&qp->mutex);
}

static struct tqp_ud *tqp_ud_alloc(struct tqp_qp *qp)
{
	struct tqp_ud *ud = kzalloc(sizeof(*ud), GFP_KERNEL_ACCOUNT);

	if (!ud)
		return NULL;
	ud->qp = qp;
	spin_lock_init(&ud->lock);
	ud->recv.sges = ud->recv_sges;
	INIT_WORK(&ud->work, tqp_ud_work);
	return ud;
}

int tqp_ud_create(struct tqp_qp *qp)
{
	struct net *net = current->nsproxy->net_ns;
	struct tqp_device *dev = qp->dev;
	struct tqp_ud *ud;
	int ret;

	if (!tqp_device_serves(dev, net))
		return -ENETUNREACH;
	ret = tqp_ud_open(dev);
	if (ret)
		return ret;
	ud = tqp_ud_alloc(qp);
	if (!ud)
		return -ENOMEM;
	ret = tqp_ud_socket(ud, net);
	if (ret)
		goto err_free;
	qp->ud = ud;
	ret = xa_insert(&dev->uds, qp->qpn, ud, GFP_KERNEL_ACCOUNT);
	if (ret)
		goto err_socket;
	return 0;

err_socket:
	qp->ud = NULL;
	tqp_ud_socket_quiet(ud);
	sock_release(ud->sock);
err_free:
	kfree(ud);
	return ret;
}

void tqp_ud_destroy(struct tqp_qp *qp)
{
	struct tqp_ud *ud = qp->ud;

	xa_erase(&qp->dev->uds, qp->qpn);
	tqp_ud_set_receiving(ud, false);	/* no receive fails any more, which would queue the work */
	tqp_ud_socket_quiet(ud);
	cancel_work_sync(&ud->work);
	sock_release(ud->sock);
	spin_lock_bh(&ud->lock);
	ud->qp = NULL;
	spin_unlock_bh(&ud->lock);
	qp->ud = NULL;
	kfree_rcu(ud, rcu);
}

/* ---- modify ---- */

static bool tqp_ud_state_receives(enum ib_qp_state state)
{
	return state == IB_QPS_RTR || state == IB_QPS_RTS || state == IB_QPS_SQD ||
	       state == IB_QPS_SQE;
}

static int tqp_ud_check_modify(const struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	enum ib_qp_state from = qp->state, to = mask & IB_QP_STATE ? attr->qp_state : from;

	if (mask & IB_QP_CUR_STATE && attr->cur_qp_state != from)
		return -EINVAL;
	if (!ib_modify_qp_is_ok(from, to, IB_QPT_UD, mask))
		return -EINVAL;
	if (mask & IB_QP_PORT && attr->port_num != 1)
		return -EINVAL;
	return mask & IB_QP_PKEY_INDEX && attr->pkey_index ? -EINVAL : 0;
}

static void tqp_ud_keep(struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	spin_lock_bh(&qp->ud->lock);
	spin_lock(&qp->lock);
	if (mask & IB_QP_QKEY) {
		qp->attr.qkey = attr->qkey;
		qp->ud->qkey = attr->qkey;
	}
	if (mask & IB_QP_SQ_PSN)
		qp->attr.sq_psn = attr->sq_psn;
	spin_unlock(&qp->lock);
	spin_unlock_bh(&qp->ud->lock);
}

static void tqp_ud_set_state(struct tqp_qp *qp, enum ib_qp_state state)
{
	spin_lock_bh(&qp->lock);
	WRITE_ONCE(qp->state, state);
	spin_unlock_bh(&qp->lock);
	tqp_ud_set_receiving(qp->ud, tqp_ud_state_receives(state));
}

/* Sends are complete as they leave, so a queue that drains is drained. */
static void tqp_ud_enter(struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	switch (attr->qp_state) {
	case IB_QPS_ERR:
		tqp_ud_close(qp);
		return;
	case IB_QPS_RESET:
		tqp_ud_set_state(qp, IB_QPS_RESET);
		tqp_ud_discard(qp);
		return;
	case IB_QPS_RTS:
		tqp_ud_set_state(qp, IB_QPS_RTS);
		tqp_ud_send(qp);	/* what was posted in SQD */
		return;
	case IB_QPS_SQD:
		tqp_ud_set_state(qp, IB_QPS_SQD);
		if (mask & IB_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify)
			tqp_qp_raise(qp, IB_EVENT_SQ_DRAINED);
		return;
	default:
		tqp_ud_set_state(qp, attr->qp_state);
	}
}

int tqp_ud_modify(struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	int ret;

	mutex_lock(&qp->mutex);
	ret = tqp_ud_check_modify(qp, attr, mask);
	if (!ret) {
		tqp_ud_keep(qp, attr, mask);
		if (mask & IB_QP_STATE)
			tqp_ud_enter(qp, attr, mask);
	}
	mutex_unlock(&qp->mutex);
	return ret;
}

/* ---- doorbell ---- */

int tqp_ud_doorbell(struct tqp_qp *qp)
{
	int ret = 0;

	mutex_lock(&qp->mutex);
	switch (qp->gone ? IB_QPS_RESET : qp->state) {
	case IB_QPS_RTS:
		tqp_ud_send(qp);
		break;
	case IB_QPS_SQE:
		tqp_qp_flush_sends(qp);
		break;
	case IB_QPS_ERR:
		tqp_qp_flush(qp);
		break;
	case IB_QPS_INIT:
	case IB_QPS_RTR:
		if (tqp_ring_posted(qp->sq, qp->sq->index))
			ret = -EINVAL;
		break;
	case IB_QPS_SQD:
		break;
	default:
		ret = -EINVAL;
	}
	mutex_unlock(&qp->mutex);
	return ret;
}
