// SPDX-License-Identifier: GPL-2.0
/* Queue pairs: references, state, and what is flushed. */
#include "object/tqp.h"

struct tqp_qp *tqp_qp_get(struct tqp_qp *qp)
{
	kref_get(&qp->ref);
	return qp;
}

static void tqp_qp_release(struct kref *ref)
{
	complete(&container_of(ref, struct tqp_qp, ref)->released);
}

void tqp_qp_put(struct tqp_qp *qp)
{
	kref_put(&qp->ref, tqp_qp_release);
}

struct tqp_qp *tqp_qp_at(struct tqp_device *dev, u32 index)
{
	struct tqp_qp *qp;

	/* A QP leaves the table before its first reference goes. */
	xa_lock(&dev->qps);
	qp = xa_load(&dev->qps, index);
	if (qp)
		tqp_qp_get(qp);
	xa_unlock(&dev->qps);
	return qp;
}

struct tqp_qp *tqp_qp_lookup(struct tqp_device *dev, u32 qpn)
{
	return tqp_qp_at(dev, tqp_qpn_index(dev, qpn));
}

enum ib_qp_state tqp_qp_state(struct tqp_qp *qp)
{
	return READ_ONCE(qp->state);
}

u64 tqp_qp_retries_ms(struct tqp_qp *qp)
{
	u32 timeout = READ_ONCE(qp->attr.timeout) & TQP_TIMEOUT_MAX;
	u32 tries = (READ_ONCE(qp->attr.retry_cnt) & TQP_RETRIES_MAX) + 1;
	u64 ns = ((u64)TQP_TIMEOUT_UNIT_NS << timeout) * tries;

	return timeout ? div_u64(ns, NSEC_PER_MSEC) : U64_MAX;
}

/* ---- error and flush ---- */

void tqp_qp_raise(struct tqp_qp *qp, enum ib_event_type type)
{
	struct ib_event event = {
		.device = qp->ib.device,
		.element.qp = &qp->ib,
		.event = type,
	};

	if (qp->ib.event_handler)
		qp->ib.event_handler(&event, qp->ib.qp_context);
}

bool tqp_qp_error(struct tqp_qp *qp, int event)
{
	unsigned long flags;
	bool moved;

	spin_lock_irqsave(&qp->lock, flags);
	moved = qp->state != IB_QPS_ERR;
	WRITE_ONCE(qp->state, IB_QPS_ERR);
	spin_unlock_irqrestore(&qp->lock, flags);
	if (!moved)
		return false;
	if (event >= 0)
		tqp_qp_raise(qp, event);
	return true;
}

void tqp_qp_connected(struct tqp_qp *qp)
{
	unsigned long flags;

	lockdep_assert_held(&qp->mutex);
	spin_lock_irqsave(&qp->lock, flags);
	if (qp->state < IB_QPS_RTS)
		WRITE_ONCE(qp->state, IB_QPS_RTS);
	spin_unlock_irqrestore(&qp->lock, flags);
}

static void tqp_qp_post_failed(struct tqp_qp *qp, struct tqp_cq *cq, u64 wr_id, u32 opcode,
			       enum ib_wc_status status)
{
	struct ib_uverbs_wc wc = {
		.wr_id = wr_id,
		.status = status,
		.opcode = opcode,
		.qp_num = qp->qpn,
	};

	tqp_cq_post(cq, &wc, true);
}

/* How much was posted is read once, so user space can't keep us here. */
static void tqp_qp_flush_sq(struct tqp_qp *qp, enum ib_wc_status oldest)
{
	enum ib_wc_status status = oldest;
	u32 left;

	for (left = tqp_ring_posted(qp->sq, qp->sq->index); left; left--) {
		const struct rxe_send_wqe *wqe = tqp_ring_entry(qp->sq, qp->sq->index);
		u64 wr_id = READ_ONCE(wqe->wr.wr_id);
		u32 opcode = READ_ONCE(wqe->wr.opcode);

		tqp_ring_consume(qp->sq);
		tqp_qp_post_failed(qp, qp->scq, wr_id, tqp_wc_opcode(opcode), status);
		status = IB_WC_WR_FLUSH_ERR;
	}
}

static void tqp_qp_flush_rq(struct tqp_qp *qp)
{
	u32 left;

	if (!qp->rq)
		return;
	for (left = tqp_ring_posted(qp->rq, qp->rq->index); left; left--) {
		const struct rxe_recv_wqe *wqe = tqp_ring_entry(qp->rq, qp->rq->index);
		u64 wr_id = READ_ONCE(wqe->wr_id);

		tqp_ring_consume(qp->rq);
		tqp_qp_post_failed(qp, qp->rcq, wr_id, IB_WC_RECV, IB_WC_WR_FLUSH_ERR);
	}
}

void tqp_qp_flush_sends(struct tqp_qp *qp)
{
	tqp_qp_flush_sq(qp, IB_WC_WR_FLUSH_ERR);
}

void tqp_qp_flush(struct tqp_qp *qp)
{
	tqp_qp_flush_sq(qp, IB_WC_WR_FLUSH_ERR);
	tqp_qp_flush_rq(qp);
}

void tqp_qp_flush_unreachable(struct tqp_qp *qp)
{
	tqp_qp_flush_sq(qp, IB_WC_RETRY_EXC_ERR);
	tqp_qp_flush_rq(qp);
}
