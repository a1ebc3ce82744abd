// SPDX-License-Identifier: GPL-2.0
/* Queue pairs as verbs make, ring and destroy them. */
#include <linux/cred.h>
#include <linux/slab.h>
#include "cm/cm.h"
#include "control/control.h"
#include "device/device.h"
#include "memory/memory.h"
#include "number/number.h"
#include "rx/rx.h"
#include "ud/ud.h"

/* msn arithmetic and the switch's rq_mask. */
static_assert(TQP_WR_MAX < 1 << 15);
static_assert(TQP_SGE_MAX * sizeof(struct rxe_sge) >= TQP_INLINE_MAX_BYTES);

/* ---- create ---- */

static int tqp_qp_check_init(const struct ib_qp_init_attr *init)
{
	const struct ib_qp_cap *cap = &init->cap;

	if (init->qp_type != IB_QPT_RC && init->qp_type != IB_QPT_UD)
		return -EOPNOTSUPP;
	if (init->create_flags || init->rwq_ind_tbl)
		return -EOPNOTSUPP;
	if (!init->send_cq || !init->recv_cq)
		return -EINVAL;
	if (cap->max_send_wr > TQP_WR_MAX || cap->max_recv_wr > TQP_WR_MAX ||
	    cap->max_send_sge > TQP_SGE_MAX || cap->max_recv_sge > TQP_SGE_MAX ||
	    cap->max_inline_data > TQP_INLINE_MAX_BYTES)
		return -EINVAL;
	return 0;
}

/*
 * Who has an answer may take its question for acknowledged, and send the next one.  A NIC that
 * completes is ahead of TCP, by two messages where each is answered at once.
 */
enum {
	TQP_SQ_LATE = 2,
};

/* Inline data and SGEs share their room in the entry: each is granted what fits. */
static int tqp_qp_create_sq(struct tqp_qp *qp, struct ib_ucontext *uctx, struct ib_qp_cap *cap,
			    struct mminfo *mi)
{
	u32 room = max_t(u32, cap->max_send_sge * sizeof(struct rxe_sge),
			 round_up(cap->max_inline_data, sizeof(struct rxe_sge)));
	struct tqp_ring *ring;

	ring = tqp_ring_create(uctx, mi, cap->max_send_wr + TQP_SQ_LATE,
			       sizeof(struct rxe_send_wqe) + room);
	if (IS_ERR(ring))
		return PTR_ERR(ring);
	cap->max_send_wr = ring->mask;
	cap->max_send_sge = room / sizeof(struct rxe_sge);
	cap->max_inline_data = room;
	qp->sq = ring;
	return 0;
}

static int tqp_qp_create_rq(struct tqp_qp *qp, struct ib_ucontext *uctx, struct ib_qp_cap *cap,
			    struct mminfo *mi)
{
	u32 room = cap->max_recv_sge * sizeof(struct rxe_sge);
	struct tqp_ring *ring;

	if (qp->srq) {
		cap->max_recv_wr = 0;
		cap->max_recv_sge = 0;
		return 0;
	}
	ring = tqp_ring_create(uctx, mi, cap->max_recv_wr, sizeof(struct rxe_recv_wqe) + room);
	if (IS_ERR(ring))
		return PTR_ERR(ring);
	cap->max_recv_wr = ring->mask;
	qp->rq = ring;
	return 0;
}

static void tqp_qp_init(struct tqp_qp *qp, const struct ib_qp_init_attr *init)
{
	qp->dev = to_tqp_device(qp->ib.device);
	qp->pd = to_tqp_pd(qp->ib.pd);
	qp->uctx = to_tqp_ucontext(qp->ib.pd->uobject->context);
	qp->scq = to_tqp_cq(init->send_cq);
	qp->rcq = to_tqp_cq(init->recv_cq);
	qp->srq = init->srq ? to_tqp_srq(init->srq) : NULL;
	qp->sq_sig_all = init->sq_sig_type == IB_SIGNAL_ALL_WR;
	mutex_init(&qp->mutex);
	spin_lock_init(&qp->lock);
	kref_init(&qp->ref);
	init_completion(&qp->released);
	qp->owner = current_uid();
	qp->net_admin = ns_capable_noaudit(dev_net(qp->dev->netdev)->user_ns, CAP_NET_ADMIN);
	qp->state = IB_QPS_RESET;
	qp->attr.port_num = 1;
	qp->attr.path_mig_state = IB_MIG_MIGRATED;
}

/* Who finds it by its number may use it at once, so it has that before. */
static int tqp_qp_publish(struct tqp_qp *qp)
{
	struct tqp_device *dev = qp->dev;
	u32 index;
	int ret;

	ret = xa_alloc_cyclic(&dev->qps, &index, NULL,
			      XA_LIMIT(TQP_QPN_MIN, TQP_QPN_MIN + TQP_QP_MAX - 1), &dev->next_qp,
			      GFP_KERNEL);
	if (ret < 0)
		return ret;
	qp->qpn = tqp_qpn_of(dev, index);
	qp->ib.qp_num = qp->qpn;
	xa_store(&dev->qps, index, qp, GFP_KERNEL);	/* reserved: allocates nothing */
	return 0;
}

static void tqp_qp_withdraw(struct tqp_qp *qp)
{
	xa_erase(&qp->dev->qps, tqp_qpn_index(qp->dev, qp->qpn));
}

/*
 * Nobody finds it any more, and who had found it is through with it.  Who waited for the
 * mutex meanwhile sees that it is gone.
 */
static void tqp_qp_leave(struct tqp_qp *qp)
{
	mutex_lock(&qp->mutex);
	qp->gone = true;
	tqp_qp_withdraw(qp);
	if (qp->conn)
		tqp_conn_detach(qp);
	if (qp->ep)
		tqp_ep_abort(qp->ep);
	tqp_number_stop(qp);
	mutex_unlock(&qp->mutex);
	if (qp->ud)
		tqp_ud_destroy(qp);
	tqp_qp_put(qp);
	wait_for_completion(&qp->released);
}

int tqp_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct rxe_create_qp_resp resp = {};
	struct tqp_qp *qp = to_tqp_qp(ibqp);
	struct ib_ucontext *uctx;
	int ret;

	if (!udata)
		return -EOPNOTSUPP;
	if (udata->inlen || udata->outlen < sizeof(resp))
		return -EINVAL;
	ret = tqp_qp_check_init(init);
	if (ret)
		return ret;
	uctx = tqp_udata_context(udata);
	tqp_qp_init(qp, init);
	ret = tqp_qp_create_sq(qp, uctx, &init->cap, &resp.sq_mi);
	if (ret)
		return ret;
	ret = tqp_qp_create_rq(qp, uctx, &init->cap, &resp.rq_mi);
	if (ret)
		goto err_sq;
	qp->cap = init->cap;
	ret = tqp_qp_publish(qp);
	if (ret)
		goto err_rq;
	ret = init->qp_type == IB_QPT_UD ? tqp_ud_create(qp) : 0;
	if (!ret)
		ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (!ret)
		return 0;
	tqp_qp_leave(qp);	/* somebody may have found it already */
err_rq:
	tqp_ring_destroy(qp->rq);
err_sq:
	tqp_ring_destroy(qp->sq);
	return ret;
}

int tqp_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct tqp_qp *qp = to_tqp_qp(ibqp);

	tqp_qp_leave(qp);
	if (qp->bound)
		tqp_mw_drop_qp(qp->dev, qp->qpn);
	tqp_ring_destroy(qp->rq);
	tqp_ring_destroy(qp->sq);
	return 0;
}

/* ---- doorbell ---- */

/*
 * The rings belong to the conn and its socket lock.  A conn that still lives
 * is told to end; end.work then flushes once TCP and drivers let go of the sends.
 * True: this has.
 */
static bool tqp_qp_flush_conn(struct tqp_qp *qp)
{
	struct tqp_conn *conn = qp->conn;
	struct sock *sk = conn->sk;
	bool over;

	tqp_rx_settle(conn);
	lock_sock(sk);
	over = conn->state == TQP_CONN_DEAD && conn->end.over;
	if (over)
		tqp_qp_flush(qp);
	else if (conn->state == TQP_CONN_DEAD)
		tqp_end_wake(conn);	/* nobody waits for the peer any more */
	else
		tqp_conn_fail(conn, TCP_QP_REASON_NONE);
	release_sock(sk);
	return over;
}

/* In ERR: complete all that is posted.  Without a conn, qp->mutex makes us the rings' owner. */
bool tqp_qp_flush_locked(struct tqp_qp *qp)
{
	lockdep_assert_held(&qp->mutex);
	if (qp->conn)
		return tqp_qp_flush_conn(qp);
	tqp_qp_flush(qp);
	return true;
}

static int tqp_qp_flush_posted(struct tqp_qp *qp)
{
	if (mutex_lock_interruptible(&qp->mutex))
		return -EINTR;
	if (tqp_qp_state(qp) == IB_QPS_ERR)
		tqp_qp_flush_locked(qp);
	mutex_unlock(&qp->mutex);
	return 0;
}

/* A doorbell for receives alone is fine from INIT on, sends want a connection. */
int tqp_qp_doorbell(struct tqp_qp *qp)
{
	tqp_count(qp->dev, TQP_C_doorbells, 1);
	if (qp->ud)
		return tqp_ud_doorbell(qp);
	switch (tqp_qp_state(qp)) {
	case IB_QPS_RTS:
		tqp_conn_doorbell(qp);
		if (unlikely(READ_ONCE(qp->number_waits)))
			tqp_number_posted(qp);
		return 0;
	case IB_QPS_ERR:
		return tqp_qp_flush_posted(qp);
	case IB_QPS_INIT:
	case IB_QPS_RTR:
		return tqp_ring_posted(qp->sq, READ_ONCE(qp->sq->index)) ? -EINVAL : 0;
	default:
		return -EINVAL;
	}
}

/* librxe has written the ring; this is its doorbell. */
int tqp_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	if (wr) {
		*bad = wr;
		return -EOPNOTSUPP;
	}
	return tqp_qp_doorbell(to_tqp_qp(ibqp));
}
