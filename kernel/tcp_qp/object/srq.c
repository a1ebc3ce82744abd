// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues.  Whose message begins next takes the next receive, so a NIC
 * cannot know where one that is not whole will land: it delivers that, and the CPU copies.
 */
#include "object/tqp.h"

static int tqp_srq_check_init(const struct ib_srq_init_attr *init)
{
	if (init->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	if (!init->attr.max_wr || init->attr.max_wr > TQP_WR_MAX ||
	    init->attr.max_sge > TQP_SGE_MAX || init->attr.srq_limit > init->attr.max_wr)
		return -EINVAL;
	return 0;
}

int tqp_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *udata)
{
	struct rxe_create_srq_resp resp = {};
	struct tqp_srq *srq = to_tqp_srq(ibsrq);
	struct ib_srq_attr *attr = &init->attr;
	struct tqp_ring *ring;
	int ret;

	if (!udata)
		return -EOPNOTSUPP;
	if (udata->outlen < sizeof(resp))
		return -EINVAL;
	ret = tqp_srq_check_init(init);
	if (ret)
		return ret;
	ring = tqp_ring_create(tqp_udata_context(udata), &resp.mi, attr->max_wr,
			       sizeof(struct rxe_recv_wqe) + attr->max_sge * sizeof(struct rxe_sge));
	if (IS_ERR(ring))
		return PTR_ERR(ring);
	ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (ret) {
		tqp_ring_destroy(ring);
		return ret;
	}
	spin_lock_init(&srq->lock);
	mutex_init(&srq->nic.lock);
	srq->ring = ring;
	srq->max_sge = attr->max_sge;
	srq->limit = attr->srq_limit;
	attr->max_wr = ring->mask;
	return 0;
}

/* Every QP on it is gone by now. */
int tqp_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct tqp_srq *srq = to_tqp_srq(ibsrq);

	tqp_srq_forget(srq);
	tqp_ring_destroy(srq->ring);
	return 0;
}

int tqp_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		   struct ib_udata *udata)
{
	struct tqp_srq *srq = to_tqp_srq(ibsrq);
	unsigned long flags;

	if (mask & ~IB_SRQ_LIMIT)	/* no resize: the device says so */
		return -EOPNOTSUPP;
	if (attr->srq_limit > srq->ring->mask)
		return -EINVAL;
	spin_lock_irqsave(&srq->lock, flags);
	srq->limit = attr->srq_limit;
	spin_unlock_irqrestore(&srq->lock, flags);
	return 0;
}

int tqp_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	const struct tqp_srq *srq = to_tqp_srq(ibsrq);

	attr->max_wr = srq->ring->mask;
	attr->max_sge = srq->max_sge;
	attr->srq_limit = READ_ONCE(srq->limit);
	return 0;
}

/* Queues of kernel users are refused, as those of QPs are. */
int tqp_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad)
{
	*bad = wr;
	return -EOPNOTSUPP;
}

static void tqp_srq_limit_event(struct tqp_srq *srq)
{
	struct ib_event event = {
		.device = srq->ib.device,
		.element.srq = &srq->ib,
		.event = IB_EVENT_SRQ_LIMIT_REACHED,
	};

	if (srq->ib.event_handler)
		srq->ib.event_handler(&event, srq->ib.srq_context);
}

u32 tqp_srq_posted(const struct tqp_srq *srq)
{
	return (tqp_ring_user_prod(srq->ring) - tqp_srq_index(srq)) & srq->ring->mask;
}

/* Fewer are left than the application wants to know of; once, until it is armed again by modify_srq. */
static bool tqp_srq_is_low(struct tqp_srq *srq)
{
	lockdep_assert_held(&srq->lock);
	if (tqp_srq_posted(srq) >= srq->limit)
		return false;
	srq->limit = 0;
	return true;
}

void tqp_srq_taken(struct tqp_srq *srq)
{
	unsigned long flags;
	bool low;

	if (!READ_ONCE(srq->limit))
		return;
	spin_lock_irqsave(&srq->lock, flags);
	low = tqp_srq_is_low(srq);
	spin_unlock_irqrestore(&srq->lock, flags);
	if (low)
		tqp_srq_limit_event(srq);
}

bool tqp_srq_take(struct tqp_srq *srq, tqp_srq_copy_t copy, void *to)
{
	struct tqp_ring *ring = srq->ring;
	bool low = false, taken = false;
	unsigned long flags;

	spin_lock_irqsave(&srq->lock, flags);
	if (tqp_srq_own(srq)) {
		taken = tqp_ring_posted(ring, ring->index) &&
			copy(tqp_ring_entry(ring, ring->index), srq->max_sge, to);
		if (taken)
			tqp_ring_consume(ring);
		tqp_srq_disown(srq);
		low = taken && tqp_srq_is_low(srq);
	}
	spin_unlock_irqrestore(&srq->lock, flags);
	if (low)
		tqp_srq_limit_event(srq);
	return taken;
}
