// SPDX-License-Identifier: GPL-2.0
/*
 * modify_qp and query_qp.
 *
 * Attach and rdma_cm move a QP to RTS.  An address vector with RTR names the peer
 * of a connection by number, whose states are the application's own affair.  The
 * other attributes of an InfiniBand path are checked and kept for query, and steer
 * nothing: TCP has the path.  Masks are not insisted on, since rdma_cm's iWARP
 * users set fewer than IBTA wants.
 */
#include "cm/cm.h"
#include "control/control.h"
#include "device/device.h"
#include "number/number.h"
#include "ud/ud.h"

/* By state from, the states that may be asked for.  RESET and ERR may always be. */
static const u8 tqp_qp_next[IB_QPS_ERR + 1] = {
	[IB_QPS_RESET] = BIT(IB_QPS_INIT),
	[IB_QPS_INIT] = BIT(IB_QPS_INIT) | BIT(IB_QPS_RTR),
	[IB_QPS_RTR] = BIT(IB_QPS_RTR),
	[IB_QPS_RTS] = BIT(IB_QPS_RTS),
};

/* By number RTS is the application's to say, connected or not. */
static bool tqp_qp_numbered(const struct tqp_qp *qp, enum ib_qp_state from)
{
	return from == IB_QPS_RTR && qp->number;
}

static bool tqp_qp_may(const struct tqp_qp *qp, enum ib_qp_state from, enum ib_qp_state to)
{
	if (to == IB_QPS_RESET || to == IB_QPS_ERR)
		return true;
	if (to == IB_QPS_RTS && tqp_qp_numbered(qp, from))
		return true;
	return to <= IB_QPS_ERR && (tqp_qp_next[from] & BIT(to));
}

static bool tqp_mtu_valid(enum ib_mtu mtu)
{
	return mtu >= IB_MTU_256 && mtu <= IB_MTU_4096;
}

static int tqp_qp_check_attr(const struct ib_qp_attr *attr, int mask)
{
	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	if (mask & (IB_QP_CAP | IB_QP_ALT_PATH))
		return -EOPNOTSUPP;
	if ((mask & IB_QP_PORT) && attr->port_num != 1)
		return -EINVAL;
	if ((mask & IB_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > TQP_RD_ATOMIC_MAX)
		return -EINVAL;
	if ((mask & IB_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > TQP_RD_ATOMIC_MAX)
		return -EINVAL;
	if ((mask & IB_QP_PKEY_INDEX) && attr->pkey_index)
		return -EINVAL;
	if ((mask & IB_QP_PATH_MTU) && !tqp_mtu_valid(attr->path_mtu))
		return -EINVAL;
	return 0;
}

#define TQP_QP_KEEP(bit, field)                        \
	do {                                           \
		if (mask & (bit))                      \
			qp->attr.field = attr->field;  \
	} while (0)

static void tqp_qp_keep(struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	lockdep_assert_held(&qp->lock);
	TQP_QP_KEEP(IB_QP_ACCESS_FLAGS, qp_access_flags);
	TQP_QP_KEEP(IB_QP_QKEY, qkey);
	TQP_QP_KEEP(IB_QP_AV, ah_attr);
	TQP_QP_KEEP(IB_QP_PATH_MTU, path_mtu);
	TQP_QP_KEEP(IB_QP_TIMEOUT, timeout);
	TQP_QP_KEEP(IB_QP_RETRY_CNT, retry_cnt);
	TQP_QP_KEEP(IB_QP_RNR_RETRY, rnr_retry);
	TQP_QP_KEEP(IB_QP_RQ_PSN, rq_psn);
	TQP_QP_KEEP(IB_QP_SQ_PSN, sq_psn);
	TQP_QP_KEEP(IB_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TQP_QP_KEEP(IB_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TQP_QP_KEEP(IB_QP_MIN_RNR_TIMER, min_rnr_timer);
	TQP_QP_KEEP(IB_QP_DEST_QPN, dest_qp_num);
}

/* Out of use and empty: completions already made stay in their CQs. */
static void tqp_qp_reset(struct tqp_qp *qp)
{
	unsigned long flags;

	lockdep_assert_held(&qp->mutex);
	if (qp->conn)
		tqp_conn_detach(qp);
	if (qp->ep)
		tqp_ep_abort(qp->ep);
	tqp_number_stop(qp);
	qp->by_cm = false;
	spin_lock_irqsave(&qp->lock, flags);
	WRITE_ONCE(qp->state, IB_QPS_RESET);
	spin_unlock_irqrestore(&qp->lock, flags);
	tqp_ring_discard(qp->sq);
	if (qp->rq)
		tqp_ring_discard(qp->rq);
}

/*
 * Asked for, hence no event, but that it takes nothing from an SRQ any more: where a conn ends,
 * that says so.
 */
static void tqp_qp_close(struct tqp_qp *qp)
{
	bool moved;

	lockdep_assert_held(&qp->mutex);
	moved = tqp_qp_error(qp, -1);
	if (tqp_qp_flush_locked(qp) && moved && qp->srq)
		tqp_qp_raise(qp, IB_EVENT_QP_LAST_WQE_REACHED);
	tqp_conn_wait_end(qp);
	if (qp->ep)
		tqp_ep_abort(qp->ep);
	tqp_number_stop(qp);
}

/* The NIC was told that the peer may write, and would go on: who takes that back must be told no. */
static bool tqp_qp_nic_keeps(const struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	lockdep_assert_held(&qp->lock);
	return mask & IB_QP_ACCESS_FLAGS && qp->conn && READ_ONCE(qp->conn->offload.active) &&
	       qp->attr.qp_access_flags & IB_ACCESS_REMOTE_WRITE &&
	       !(attr->qp_access_flags & IB_ACCESS_REMOTE_WRITE) &&
	       !(mask & IB_QP_STATE && (attr->qp_state == IB_QPS_RESET || attr->qp_state == IB_QPS_ERR));
}

static int tqp_qp_transit(struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	enum ib_qp_state from, to;
	unsigned long flags;
	int ret = 0;

	spin_lock_irqsave(&qp->lock, flags);
	from = qp->state;
	to = mask & IB_QP_STATE ? attr->qp_state : from;
	if (to == IB_QPS_SQD && qp->by_cm)
		to = IB_QPS_ERR;	/* how rdma_disconnect() says RDMAC's CLOSING, even twice */
	if ((mask & IB_QP_CUR_STATE) && attr->cur_qp_state != from)
		ret = -EINVAL;
	else if (to == IB_QPS_RTS && from < IB_QPS_RTS && !tqp_qp_numbered(qp, from))
		ret = -ENOTCONN;
	else if ((mask & IB_QP_STATE) && !tqp_qp_may(qp, from, to))
		ret = -EINVAL;
	else if (tqp_qp_nic_keeps(qp, attr, mask))
		ret = -EOPNOTSUPP;
	if (!ret) {
		tqp_qp_keep(qp, attr, mask);
		if (to == IB_QPS_RTS && from == IB_QPS_RTR)
			tqp_number_before_rts(qp);
		if (to != IB_QPS_RESET && to != IB_QPS_ERR)
			smp_store_release(&qp->state, to);	/* pairs with tqp_qp_may_send() */
	}
	spin_unlock_irqrestore(&qp->lock, flags);
	if (ret || !(mask & IB_QP_STATE))
		return ret;
	if (to == IB_QPS_RESET)
		tqp_qp_reset(qp);
	else if (to == IB_QPS_ERR)
		tqp_qp_close(qp);
	else if (to == IB_QPS_RTS && from == IB_QPS_RTR)
		tqp_number_rts(qp);
	return 0;
}

/* What RTR names is looked at before, and counts once the QP is there. */
static int tqp_qp_modify(struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	struct tqp_number *number = tqp_number_create(qp, attr, mask);
	int ret;

	if (IS_ERR(number))
		return PTR_ERR(number);
	ret = tqp_qp_transit(qp, attr, mask);
	if (number && ret)
		tqp_number_discard(number);
	else if (number)
		tqp_number_start(number);
	return ret;
}

int tqp_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct tqp_qp *qp = to_tqp_qp(ibqp);
	int ret;

	if (qp->ud)
		return tqp_ud_modify(qp, attr, mask);
	ret = tqp_qp_check_attr(attr, mask);
	if (ret)
		return ret;
	/* An attach may wait for its peer with the mutex held. */
	if (mutex_lock_interruptible(&qp->mutex))
		return -EINTR;
	ret = tqp_qp_modify(qp, attr, mask);
	mutex_unlock(&qp->mutex);
	return ret;
}

int tqp_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		 struct ib_qp_init_attr *init)
{
	struct tqp_qp *qp = to_tqp_qp(ibqp);
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	*attr = qp->attr;
	attr->qp_state = qp->state;
	spin_unlock_irqrestore(&qp->lock, flags);
	attr->cur_qp_state = attr->qp_state;
	attr->cap = qp->cap;
	/* The core's, not the caller's to put. */
	attr->ah_attr.grh.sgid_attr = NULL;

	init->event_handler = ibqp->event_handler;
	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = qp->cap;
	init->sq_sig_type = qp->sq_sig_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR;
	init->qp_type = ibqp->qp_type;
	init->port_num = 1;
	return 0;
}
