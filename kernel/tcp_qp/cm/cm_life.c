// SPDX-License-Identifier: GPL-2.0
/*
 * An endpoint's birth and end, and the table of all there are.
 *
 * iw_cm keeps a request by its number in the table, not by a pointer: it may
 * forget a request without a word, and it may ask for one that is long gone.
 */
#include <linux/cred.h>
#include <linux/delay.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include "cm/cm.h"

static DEFINE_XARRAY_FLAGS(tqp_eps, XA_FLAGS_ALLOC1);
static u32 tqp_next_ep;
static atomic_t tqp_eps_live = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(tqp_eps_gone);

struct tqp_ep *tqp_ep_get(struct tqp_ep *ep)
{
	kref_get(&ep->ref);
	return ep;
}

static void tqp_ep_release(struct kref *ref)
{
	struct tqp_ep *ep = container_of(ref, struct tqp_ep, ref);

	tqp_asker_put(&ep->asker);
	put_device(&ep->dev->ib.dev);
	if (ep->net)
		put_net(ep->net);
	kfree(ep);
	if (atomic_dec_and_test(&tqp_eps_live))
		wake_up_all(&tqp_eps_gone);
}

void tqp_ep_put(struct tqp_ep *ep)
{
	kref_put(&ep->ref, tqp_ep_release);
}

/* ---- what its conn calls ---- */

static struct tqp_ep *tqp_ep_of(struct tqp_conn_owner *owner)
{
	return container_of(owner, struct tqp_ep, owner);
}

static void tqp_ep_owner_get(struct tqp_conn_owner *owner)
{
	tqp_ep_get(tqp_ep_of(owner));
}

static void tqp_ep_owner_put(struct tqp_conn_owner *owner)
{
	tqp_ep_put(tqp_ep_of(owner));
}

static void tqp_ep_owner_wake(struct tqp_conn_owner *owner)
{
	tqp_ep_wake(tqp_ep_of(owner));
}

static const struct tqp_conn_owner_ops tqp_ep_owner_ops = {
	.get = tqp_ep_owner_get,
	.put = tqp_ep_owner_put,
	.wake = tqp_ep_owner_wake,
};

/* ---- birth ---- */

static void tqp_ep_socket_event(struct tqp_hello_sock *hs)
{
	tqp_ep_wake(container_of(hs, struct tqp_ep, hs));
}

struct tqp_ep *tqp_ep_create(struct tqp_device *dev, enum tqp_ep_state state)
{
	struct tqp_ep *ep = kzalloc(sizeof(*ep), GFP_KERNEL_ACCOUNT);

	if (!ep)
		return NULL;
	ep->owner.ops = &tqp_ep_owner_ops;
	ep->hs.event = tqp_ep_socket_event;
	kref_init(&ep->ref);	/* the caller's */
	mutex_init(&ep->mutex);
	INIT_LIST_HEAD(&ep->node);
	INIT_DELAYED_WORK(&ep->work, tqp_ep_work);
	ep->state = state;
	ep->active = state == TQP_EP_CONNECTING;
	ep->dev = dev;
	get_device(&dev->ib.dev);
	atomic_inc(&tqp_eps_live);
	mutex_lock(&ep->mutex);
	kref_get(&ep->ref);	/* the table's */
	/* cyclic: a number does not come again before 4 G connections */
	if (xa_alloc_cyclic(&tqp_eps, &ep->id, ep, xa_limit_32b, &tqp_next_ep, GFP_KERNEL) < 0) {
		ep->state = TQP_EP_CLOSED;
		mutex_unlock(&ep->mutex);
		tqp_ep_put(ep);
		tqp_ep_put(ep);
		return NULL;
	}
	return ep;
}

struct tqp_ep *tqp_ep_find(struct tqp_device *dev, u32 id)
{
	struct tqp_ep *ep;

	xa_lock(&tqp_eps);
	ep = xa_load(&tqp_eps, id);
	if (ep && ep->dev == dev)
		tqp_ep_get(ep);
	else
		ep = NULL;
	xa_unlock(&tqp_eps);
	return ep;
}

void tqp_ep_wake(struct tqp_ep *ep)
{
	u32 left;

	if (READ_ONCE(ep->state) == TQP_EP_CLOSED)
		return;
	tqp_ep_get(ep);
	for (left = tqp_work_now(&ep->work); left; left--)
		tqp_ep_put(ep);
}

void tqp_ep_abort(struct tqp_ep *ep)
{
	WRITE_ONCE(ep->aborted, true);
	tqp_ep_wake(ep);
}

void tqp_ep_deadline(struct tqp_ep *ep, u32 ms)
{
	ep->deadline = ms ? (jiffies + msecs_to_jiffies(ms)) ?: 1 : 0;
}

/* ---- the QP ---- */

/* rdma_ucm passes on whatever number it was given: the QP must be the caller's. */
static bool tqp_qp_callers(const struct tqp_qp *qp)
{
	return uid_eq(qp->owner, current_uid()) || capable(CAP_NET_ADMIN);
}

static int tqp_qp_claimable(struct tqp_qp *qp)
{
	enum ib_qp_state state = tqp_qp_state(qp);

	lockdep_assert_held(&qp->mutex);
	if (qp->ib.qp_type != IB_QPT_RC)
		return -EOPNOTSUPP;
	if (qp->ep || qp->conn || qp->number)
		return -EISCONN;
	if (qp->gone || (state != IB_QPS_INIT && state != IB_QPS_RTR))
		return -EINVAL;
	return READ_ONCE(qp->dev->leaving) ? -ENODEV : 0;
}

static bool tqp_qp_connects(struct tqp_qp *qp)
{
	bool connects;

	spin_lock_bh(&qp->lock);
	connects = qp->conn || qp->number;
	spin_unlock_bh(&qp->lock);
	return connects;
}

/*
 * An attach keeps the mutex until its peer answers, and others may come after it.  rdma_cm has
 * locked its id, and may wait for that before we hear of the device's end: so nobody sleeps here
 * for long.
 */
static int tqp_ep_lock_qp(struct tqp_qp *qp)
{
	unsigned long by = jiffies + msecs_to_jiffies(TQP_CM_CLAIM_MS);

	if (!tqp_qp_callers(qp))
		return -EPERM;
	while (!mutex_trylock(&qp->mutex)) {
		if (tqp_qp_connects(qp))
			return -EISCONN;
		if (time_after(jiffies, by))
			return -EBUSY;
		if (msleep_interruptible(TQP_CM_CLAIM_LOOK_MS))
			return -EINTR;
	}
	return 0;
}

struct tqp_qp *tqp_ep_claim(struct tqp_ep *ep, u32 qpn)
{
	struct tqp_qp *qp = tqp_qp_lookup(ep->dev, qpn);
	int err;

	if (!qp)
		return ERR_PTR(-EINVAL);
	err = tqp_ep_lock_qp(qp);
	if (err)
		goto out;
	err = tqp_qp_claimable(qp);
	if (!err) {
		qp->ep = tqp_ep_get(ep);
		qp->by_cm = true;
	}
	mutex_unlock(&qp->mutex);
out:
	if (!err)
		return qp;
	tqp_qp_put(qp);
	return ERR_PTR(err);
}

void tqp_ep_unclaim(struct tqp_ep *ep, struct tqp_qp *qp)
{
	mutex_lock(&qp->mutex);
	qp->ep = NULL;
	mutex_unlock(&qp->mutex);
	tqp_qp_put(qp);
	tqp_ep_put(ep);
}

/* ---- the end ---- */

void tqp_ep_close(struct tqp_ep *ep, bool reset)
{
	struct iw_cm_id *cm_id = ep->cm_id;

	lockdep_assert_held(&ep->mutex);
	if (ep->state == TQP_EP_CLOSED)
		return;
	WRITE_ONCE(ep->state, TQP_EP_CLOSED);
	tqp_listener_leave(ep);
	tqp_hello_release(&ep->hs, reset);
	if (ep->conn) {
		tqp_conn_put(ep->conn);
		ep->conn = NULL;
	}
	if (ep->qp)
		tqp_ep_unclaim(ep, ep->qp);
	ep->qp = NULL;
	ep->cm_id = NULL;
	if (cm_id)
		cm_id->rem_ref(cm_id);
	xa_erase(&tqp_eps, ep->id);
	/* or the module waits at its end for a deadline that means nothing any more */
	if (cancel_delayed_work(&ep->work))
		tqp_ep_put(ep);
	tqp_ep_put(ep);		/* the table's; the caller has another */
}

void tqp_cm_abort_device(struct tqp_device *dev)
{
	struct tqp_ep *ep;
	unsigned long id;

	/* An ep leaves the table before its reference goes. */
	xa_lock(&tqp_eps);
	xa_for_each(&tqp_eps, id, ep)
		if (ep->dev == dev)
			tqp_ep_abort(ep);
	xa_unlock(&tqp_eps);
}

void tqp_cm_exit(void)
{
	wait_event(tqp_eps_gone, atomic_read(&tqp_eps_live) == 0);
}
