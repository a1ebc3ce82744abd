// SPDX-License-Identifier: GPL-2.0
/*
 * Listening: one TCP listener for each iw_cm listen, that is for each device.
 *
 * Whatever connects gets TQP_CM_REQUEST_MS to send its hello.  Of those that
 * have not, at most TQP_CM_HALF_OPEN_MAX are kept and the oldest goes first,
 * so strays can't keep a real client out.
 */
#include <net/ipv6.h>
#include <net/sock.h>
#include "cm/cm.h"

static void tqp_listener_release(struct kref *ref)
{
	struct tqp_listener *listener = container_of(ref, struct tqp_listener, ref);

	tqp_asker_put(&listener->asker);
	kfree(listener);
}

void tqp_listener_put(struct tqp_listener *listener)
{
	kref_put(&listener->ref, tqp_listener_release);
}

/* ---- half-open eps ---- */

void tqp_listener_leave(struct tqp_ep *ep)
{
	struct tqp_listener *listener = ep->listener;

	lockdep_assert_held(&ep->mutex);
	if (!listener)
		return;
	ep->listener = NULL;
	spin_lock(&listener->lock);
	if (!list_empty(&ep->node)) {
		list_del_init(&ep->node);
		listener->nr_half_open--;
		tqp_ep_put(ep);
	}
	spin_unlock(&listener->lock);
	tqp_listener_put(listener);
}

static void tqp_listener_evict_locked(struct tqp_listener *listener)
{
	struct tqp_ep *ep = list_first_entry(&listener->half_open, struct tqp_ep, node);

	lockdep_assert_held(&listener->lock);
	list_del_init(&ep->node);
	listener->nr_half_open--;
	WRITE_ONCE(ep->evicted, true);
	tqp_ep_wake(ep);
	tqp_ep_put(ep);
}

/* False: the listen is over. */
static bool tqp_listener_join(struct tqp_listener *listener, struct tqp_ep *ep)
{
	bool joined, evicted = false;

	lockdep_assert_held(&ep->mutex);
	spin_lock(&listener->lock);
	joined = !listener->closing;
	if (joined) {
		evicted = listener->nr_half_open >= TQP_CM_HALF_OPEN_MAX;
		if (evicted)
			tqp_listener_evict_locked(listener);
		list_add_tail(&tqp_ep_get(ep)->node, &listener->half_open);
		listener->nr_half_open++;
		kref_get(&listener->ref);
		ep->listener = listener;
	}
	spin_unlock(&listener->lock);
	tqp_ep_count(ep, TQP_C_cm_evicted, evicted);
	return joined;
}

/* ---- accepting ---- */

static void tqp_listener_take(struct tqp_listener *listener, struct socket *sock)
{
	struct tqp_ep *ep = NULL;

	if (!tqp_asker_give(&listener->asker, sock->sk))
		ep = tqp_ep_create(listener->dev, TQP_EP_REQUEST_WAIT);
	if (!ep) {
		sock_release(sock);
		return;
	}
	ep->hs.sock = sock;
	tqp_hello_install(&ep->hs, listener->saved_data_ready);
	if (tqp_listener_join(listener, ep)) {
		tqp_ep_deadline(ep, TQP_CM_REQUEST_MS);
		tqp_ep_wake(ep);	/* the hello may be here already */
	} else {
		tqp_ep_close(ep, true);
	}
	mutex_unlock(&ep->mutex);
	tqp_ep_put(ep);
}

static void tqp_listener_work(struct work_struct *work)
{
	struct tqp_listener *listener = container_of(to_delayed_work(work), struct tqp_listener, work);
	struct socket *sock;
	int err = 0;

	for (int i = 0; i < TQP_CM_ACCEPT_MAX && !err; i++) {
		err = kernel_accept(listener->sock, &sock, O_NONBLOCK);
		if (!err)
			tqp_listener_take(listener, sock);
	}
	if (err == -EAGAIN)
		return;
	/* others' turn, or there was no memory for one; cancelling waits for this too */
	mod_delayed_work(tqp_wq, &listener->work, err ? msecs_to_jiffies(TQP_CM_ACCEPT_MS) : 0);
}

/* Connections inherit this and the pointer, until they are taken: those it must not serve. */
static void tqp_listener_data_ready(struct sock *sk)
{
	struct tqp_listener *listener;

	read_lock_bh(&sk->sk_callback_lock);
	listener = sk->sk_user_data;
	if (listener && sk->sk_state == TCP_LISTEN)
		mod_delayed_work(tqp_wq, &listener->work, 0);
	read_unlock_bh(&sk->sk_callback_lock);
}

/* ---- create and destroy ---- */

static bool tqp_address_any(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET6)
		return ipv6_addr_any(&((struct sockaddr_in6 *)address)->sin6_addr);
	return ((struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
}

/* rdma_cm listens on every device with the same wildcard: each serves its own netdev. */
static int tqp_listener_bind(struct tqp_listener *listener)
{
	struct iw_cm_id *cm_id = listener->cm_id;
	struct sockaddr_storage at = cm_id->m_local_addr;
	struct sock *sk = listener->sock->sk;
	int err = 0;

	if (at.ss_family == AF_INET6 && cm_id->afonly)
		err = ip6_sock_set_v6only(sk);
	if (!err && tqp_address_any(&at))
		err = sock_bindtoindex(sk, listener->dev->netdev->ifindex, true);
	if (err)
		return err;
	return kernel_bind(listener->sock, (struct sockaddr_unsized *)&at, sizeof(at));
}

static void tqp_listener_install(struct tqp_listener *listener)
{
	struct sock *sk = listener->sock->sk;

	write_lock_bh(&sk->sk_callback_lock);
	listener->saved_data_ready = sk->sk_data_ready;
	sk->sk_user_data = listener;
	WRITE_ONCE(sk->sk_data_ready, tqp_listener_data_ready);
	write_unlock_bh(&sk->sk_callback_lock);
}

static void tqp_listener_uninstall(struct tqp_listener *listener)
{
	struct sock *sk = listener->sock->sk;

	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_user_data = NULL;
	WRITE_ONCE(sk->sk_data_ready, listener->saved_data_ready);
	write_unlock_bh(&sk->sk_callback_lock);
}

static struct tqp_listener *tqp_listener_alloc(struct tqp_device *dev, struct iw_cm_id *cm_id)
{
	struct tqp_listener *listener = kzalloc(sizeof(*listener), GFP_KERNEL_ACCOUNT);

	if (!listener)
		return NULL;
	kref_init(&listener->ref);
	listener->dev = dev;
	listener->cm_id = cm_id;
	INIT_DELAYED_WORK(&listener->work, tqp_listener_work);
	spin_lock_init(&listener->lock);
	INIT_LIST_HEAD(&listener->half_open);
	return listener;
}

static int tqp_listener_open(struct tqp_listener *listener, struct net *net, int backlog)
{
	int err = tqp_cm_socket(net, listener->cm_id, &listener->sock);

	if (err)
		return err;
	tqp_asker_get(&listener->asker, listener->sock->sk);
	err = tqp_listener_bind(listener);
	if (err)
		goto release;
	tqp_listener_install(listener);
	err = kernel_listen(listener->sock, backlog);
	if (!err)
		return 0;
	tqp_listener_uninstall(listener);
release:
	sock_release(listener->sock);
	listener->sock = NULL;
	return err;
}

/*
 * A wildcard goes to every device there is, whosever namespace that is in: there
 * it hears nothing, and fails no listen on the others.
 */
static int tqp_listener_start(struct tqp_listener *listener, int backlog)
{
	const struct iw_cm_id *cm_id = listener->cm_id;
	struct net *net = tqp_cm_net(cm_id);

	if (net && tqp_device_serves(listener->dev, net))
		return tqp_listener_open(listener, net, backlog);
	return net && tqp_address_any(&cm_id->m_local_addr) ? 0 : -ENETUNREACH;
}

int tqp_cm_create_listen(struct iw_cm_id *cm_id, int backlog)
{
	struct tqp_device *dev = to_tqp_device(cm_id->device);
	struct tqp_listener *listener = tqp_listener_alloc(dev, cm_id);
	int err;

	if (!listener)
		return -ENOMEM;
	cm_id->add_ref(cm_id);
	cm_id->provider_data = listener;
	err = tqp_listener_start(listener, backlog);
	if (!err)
		return 0;
	cm_id->provider_data = NULL;
	cm_id->rem_ref(cm_id);
	tqp_listener_put(listener);
	return err;
}

static void tqp_listener_abort_all(struct tqp_listener *listener)
{
	spin_lock(&listener->lock);
	listener->closing = true;
	while (!list_empty(&listener->half_open))
		tqp_listener_evict_locked(listener);
	spin_unlock(&listener->lock);
}

int tqp_cm_destroy_listen(struct iw_cm_id *cm_id)
{
	struct tqp_listener *listener = cm_id->provider_data;

	if (WARN_ON_ONCE(!listener))
		return -EINVAL;
	if (listener->sock)
		tqp_listener_uninstall(listener);
	tqp_listener_abort_all(listener);
	cancel_delayed_work_sync(&listener->work);
	if (listener->sock)
		sock_release(listener->sock);
	cm_id->provider_data = NULL;
	cm_id->rem_ref(cm_id);
	tqp_listener_put(listener);
	return 0;
}
