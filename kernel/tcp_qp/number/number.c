// SPDX-License-Identifier: GPL-2.0
/* A number's birth and end, and what modify_qp and doorbells tell it. */
#include <linux/cred.h>
#include <net/inet_ecn.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <rdma/ib_cache.h>
#include "control/control.h"
#include "number/number.h"
#include "socket/socket.h"

static atomic_t tqp_numbers_live = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(tqp_numbers_gone);

/* ---- references ---- */

static struct tqp_number *tqp_number_hold(struct tqp_number *number)
{
	kref_get(&number->ref);
	return number;
}

static void tqp_number_release(struct kref *ref)
{
	struct tqp_number *number = container_of(ref, struct tqp_number, ref);

	tqp_asker_put(&number->asker);
	put_cred(number->cred);
	put_net(number->net);
	kfree(number);
	if (atomic_dec_and_test(&tqp_numbers_live))
		wake_up_all(&tqp_numbers_gone);
}

void tqp_number_put(struct tqp_number *number)
{
	kref_put(&number->ref, tqp_number_release);
}

struct tqp_number *tqp_number_get(struct tqp_qp *qp)
{
	struct tqp_number *number;
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	number = qp->number ? tqp_number_hold(qp->number) : NULL;
	spin_unlock_irqrestore(&qp->lock, flags);
	return number;
}

static void tqp_number_set(struct tqp_qp *qp, struct tqp_number *number)
{
	unsigned long flags;

	lockdep_assert_held(&qp->mutex);
	spin_lock_irqsave(&qp->lock, flags);
	qp->number = number;
	WRITE_ONCE(qp->psn_mismatch, false);
	WRITE_ONCE(qp->number_waits, number);
	spin_unlock_irqrestore(&qp->lock, flags);
}

void tqp_number_wake(struct tqp_number *number)
{
	u32 left;

	if (READ_ONCE(number->state) == TQP_NUMBER_CLOSED)
		return;
	tqp_number_hold(number);
	for (left = tqp_work_now(&number->work); left; left--)
		tqp_number_put(number);
}

/* ---- what its conn and its socket call ---- */

static struct tqp_number *tqp_number_of(struct tqp_conn_owner *owner)
{
	return container_of(owner, struct tqp_number, owner);
}

static void tqp_number_owner_get(struct tqp_conn_owner *owner)
{
	tqp_number_hold(tqp_number_of(owner));
}

static void tqp_number_owner_put(struct tqp_conn_owner *owner)
{
	tqp_number_put(tqp_number_of(owner));
}

static void tqp_number_owner_wake(struct tqp_conn_owner *owner)
{
	tqp_number_wake(tqp_number_of(owner));
}

static const struct tqp_conn_owner_ops tqp_number_owner_ops = {
	.get = tqp_number_owner_get,
	.put = tqp_number_owner_put,
	.wake = tqp_number_owner_wake,
	.by_number = true,
};

static void tqp_number_socket_event(struct tqp_hello_sock *hs)
{
	tqp_number_wake(container_of(hs, struct tqp_number, hs));
}

/* ---- RTR ---- */

static bool tqp_number_named(const struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	return (mask & IB_QP_STATE) && attr->qp_state == IB_QPS_RTR &&
	       (mask & IB_QP_AV) && (mask & IB_QP_DEST_QPN) &&
	       rdma_ah_get_ah_flags(&attr->ah_attr) & IB_AH_GRH && tqp_number_port &&
	       !qp->ep && !qp->conn && !qp->number &&
	       READ_ONCE(qp->state) == IB_QPS_INIT;	/* qp->mutex: stays */
}

static bool tqp_number_reachable(const struct in6_addr *local, const struct in6_addr *remote)
{
	return ipv6_addr_v4mapped(local) == ipv6_addr_v4mapped(remote) &&
	       !ipv6_addr_any(remote) && !ipv6_addr_is_multicast(remote) &&
	       !(ipv6_addr_v4mapped(remote) &&
		 (ipv4_is_multicast(remote->s6_addr32[3]) || ipv4_is_zeronet(remote->s6_addr32[3])));
}

/* The lower end connects: both know both. */
static void tqp_number_choose(struct tqp_number *number)
{
	int order = memcmp(&number->local, &number->remote, sizeof(number->local));

	if (!order)
		order = (int)number->qp->qpn - (int)number->dest_qpn;
	number->active = order <= 0;
	number->self = !order;
}

static struct tqp_number *tqp_number_alloc(struct tqp_qp *qp)
{
	struct tqp_number *number = kzalloc(sizeof(*number), GFP_KERNEL_ACCOUNT);

	if (!number)
		return NULL;
	number->owner.ops = &tqp_number_owner_ops;
	kref_init(&number->ref);	/* qp->number's */
	mutex_init(&number->mutex);
	number->hs.event = tqp_number_socket_event;
	INIT_DELAYED_WORK(&number->work, tqp_number_work);
	number->qp = tqp_qp_get(qp);
	number->net = get_net(dev_net(qp->dev->netdev));
	number->cred = get_current_cred();
	number->retry_ms = TQP_NUMBER_RETRY_FIRST_MS;
	number->retry_at = jiffies;
	atomic_inc(&tqp_numbers_live);
	return number;
}

struct tqp_number *tqp_number_create(struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(&attr->ah_attr);
	struct tqp_number *number;
	struct in6_addr local, remote;
	int err;

	lockdep_assert_held(&qp->mutex);
	if (!tqp_number_named(qp, attr, mask))
		return NULL;
	if (!grh->sgid_attr)
		return ERR_PTR(-EINVAL);
	memcpy(&local, grh->sgid_attr->gid.raw, sizeof(local));
	memcpy(&remote, grh->dgid.raw, sizeof(remote));
	if (!tqp_number_reachable(&local, &remote))
		return ERR_PTR(-EINVAL);
	/* who is asking must be where the packets would be */
	if (!tqp_device_serves(qp->dev, current->nsproxy->net_ns))
		return ERR_PTR(-ENETUNREACH);
	number = tqp_number_alloc(qp);
	if (!number)
		return ERR_PTR(-ENOMEM);
	number->local = local;
	number->remote = remote;
	number->dest_qpn = attr->dest_qp_num & TQP_QPN_MAX;
	number->rq_psn = (mask & IB_QP_RQ_PSN ? attr->rq_psn : qp->attr.rq_psn) & TQP_PSN_MAX;
	number->tos = grh->traffic_class & ~INET_ECN_MASK;
	tqp_number_choose(number);
	err = tqp_number_ask(number);
	if (err) {
		tqp_number_discard(number);
		return ERR_PTR(err);
	}
	return number;
}

void tqp_number_start(struct tqp_number *number)
{
	struct tqp_qp *qp = number->qp;

	tqp_number_set(qp, number);
	tqp_number_listen(number->net);
	if (number->active)
		tqp_number_wake(number);
	else
		tqp_number_unpark(number->net, qp->qpn);
}

void tqp_number_discard(struct tqp_number *number)
{
	tqp_qp_put(number->qp);
	tqp_number_put(number);
}

/* ---- RTS and doorbells ---- */

void tqp_number_before_rts(struct tqp_qp *qp)
{
	lockdep_assert_held(&qp->mutex);
	if (qp->number)
		tqp_number_check_psn(qp->number);
}

void tqp_number_rts(struct tqp_qp *qp)
{
	lockdep_assert_held(&qp->mutex);
	if (!qp->number)
		return;
	tqp_conn_doorbell(qp);
	if (READ_ONCE(qp->number_waits))
		tqp_number_posted(qp);
	else
		tqp_number_wake(qp->number);	/* it has a timeout now */
}

void tqp_number_posted(struct tqp_qp *qp)
{
	struct tqp_number *number;
	unsigned long timeout;

	if (!tqp_ring_posted(qp->sq, READ_ONCE(qp->sq->index)))
		return;
	number = tqp_number_get(qp);
	if (!number)
		return;
	timeout = tqp_number_timeout(qp);
	if (timeout && !READ_ONCE(number->send_by))
		WRITE_ONCE(number->send_by, (jiffies + timeout) ?: 1);
	tqp_number_wake(number);
	tqp_number_put(number);
}

/* ---- the end ---- */

void tqp_number_stop(struct tqp_qp *qp)
{
	struct tqp_number *number = qp->number;

	lockdep_assert_held(&qp->mutex);
	if (!number)
		return;
	tqp_number_set(qp, NULL);
	WRITE_ONCE(number->aborted, true);
	tqp_number_wake(number);
	tqp_number_put(number);
}

int tqp_number_init(void)
{
	return tqp_number_net_init();
}

void tqp_number_exit(void)
{
	wait_event(tqp_numbers_gone, atomic_read(&tqp_numbers_live) == 0);
	tqp_number_net_exit();
	tqp_request_wait_gone();
}
