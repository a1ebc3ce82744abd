// SPDX-License-Identifier: GPL-2.0
/* Completion queues. */
#include "object/tqp.h"

/*
 * IBTA 11.4.2.2: a completion with an error counts as solicited.  True if the
 * consumer is to be woken; it must arm again.
 */
static bool tqp_cq_take_notify(struct tqp_cq *cq, const struct ib_uverbs_wc *wc, bool solicited)
{
	lockdep_assert_held(&cq->lock);
	if (wc->status != IB_WC_SUCCESS)
		solicited = true;
	if (!(cq->notify & IB_CQ_NEXT_COMP) && !(solicited && (cq->notify & IB_CQ_SOLICITED)))
		return false;
	cq->notify = 0;
	return true;
}

static void tqp_cq_overflow(struct tqp_cq *cq)
{
	struct ib_event event = {
		.device = cq->ib.device,
		.element.cq = &cq->ib,
		.event = IB_EVENT_CQ_ERR,
	};

	tqp_count(to_tqp_device(cq->ib.device), TQP_C_cq_overflows, 1);
	if (cq->ib.event_handler)
		cq->ib.event_handler(&event, cq->ib.cq_context);
}

struct tqp_cq_batch {
	const struct ib_uverbs_wc *wc;
	const u64 *wr_ids;
	const u32 *lengths;		/* or NULL */
	u32 count;
	bool solicited;
};

/* As many as there is room for; how many. */
static u32 tqp_cq_fill(struct tqp_cq *cq, const struct tqp_cq_batch *batch)
{
	u32 n = min(batch->count, tqp_ring_room(cq->ring));
	struct ib_uverbs_wc *entry;

	for (u32 i = 0; i < n; i++) {
		entry = tqp_ring_entry(cq->ring, cq->ring->index + i);
		*entry = *batch->wc;
		entry->wr_id = batch->wr_ids[i];
		if (batch->lengths)
			entry->byte_len = batch->lengths[i];
	}
	return n;
}

/* The ring is ours, if @owned; the lock is given back, and who waits is woken. */
static void tqp_cq_post_owned(struct tqp_cq *cq, bool owned, const struct tqp_cq_batch *batch,
			      unsigned long flags) __releases(&cq->lock)
{
	u32 n = owned ? tqp_cq_fill(cq, batch) : 0;
	bool overflow = n < batch->count, notify = false;
	struct tqp_cq_fd *fd;

	if (n) {
		tqp_ring_produce(cq->ring, n);
		notify = tqp_cq_take_notify(cq, batch->wc, batch->solicited);
		tqp_cq_told(cq, true);
	}
	cq->overflown = overflow;
	if (!overflow)
		tqp_cq_give(cq);
	else if (owned)
		tqp_cq_keep(cq);
	fd = cq->fd;
	spin_unlock_irqrestore(&cq->lock, flags);

	if (fd)
		tqp_cq_fd_wake(fd);
	if (overflow)
		tqp_cq_overflow(cq);
	if (notify)
		cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
}

void tqp_cq_post_all(struct tqp_cq *cq, const struct ib_uverbs_wc *wc, const u64 *wr_ids,
		     const u32 *lengths, u32 count, bool solicited)
{
	const struct tqp_cq_batch batch = { wc, wr_ids, lengths, count, solicited };
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	if (cq->overflown) {
		spin_unlock_irqrestore(&cq->lock, flags);
		return;
	}
	tqp_cq_post_owned(cq, tqp_cq_take(cq), &batch, flags);
}

bool tqp_cq_post_claimed(struct tqp_cq *cq, const struct ib_uverbs_wc *wc, __le32 *completed,
			 u32 number)
{
	const struct tqp_cq_batch batch = { .wc = wc, .wr_ids = &wc->wr_id, .count = 1 };
	unsigned long flags;
	bool owned;

	spin_lock_irqsave(&cq->lock, flags);
	if (cq->overflown) {
		spin_unlock_irqrestore(&cq->lock, flags);
		return true;
	}
	owned = tqp_cq_take(cq);
	if (owned && le32_to_cpu(READ_ONCE(*completed)) != number) {
		tqp_cq_give(cq);
		spin_unlock_irqrestore(&cq->lock, flags);
		tqp_cq_came(cq, false);
		return false;
	}
	if (owned)
		WRITE_ONCE(*completed, cpu_to_le32(number + 1));
	tqp_cq_post_owned(cq, owned, &batch, flags);
	return true;
}

void tqp_cq_came(struct tqp_cq *cq, bool solicited)
{
	const struct ib_uverbs_wc wc = { .status = IB_WC_SUCCESS };
	struct tqp_cq_fd *fd;
	unsigned long flags;
	bool notify;

	spin_lock_irqsave(&cq->lock, flags);
	/* who armed it, or polled, after the NIC wrote knows already */
	notify = tqp_cq_came_since(cq) && tqp_cq_take_notify(cq, &wc, solicited);
	fd = tqp_cq_unpolled(cq) ? cq->fd : NULL;
	tqp_cq_told(cq, fd);
	spin_unlock_irqrestore(&cq->lock, flags);
	if (fd)
		tqp_cq_fd_wake(fd);
	if (notify)
		cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
}

static struct tqp_ring *tqp_cq_ring(struct ib_udata *udata, struct mminfo *mi, u32 cqe)
{
	return tqp_ring_create(tqp_udata_context(udata), mi, cqe, sizeof(struct ib_uverbs_wc));
}

int tqp_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *init,
		  struct uverbs_attr_bundle *attrs)
{
	struct ib_udata *udata = attrs ? &attrs->driver_udata : NULL;
	struct rxe_create_cq_resp resp = {};
	struct tqp_cq *cq = to_tqp_cq(ibcq);
	struct tqp_ring *ring;
	int ret;

	if (!udata || init->flags)
		return -EOPNOTSUPP;
	if (udata->outlen < sizeof(resp) || !init->cqe || init->cqe > TQP_CQE_MAX)
		return -EINVAL;

	/*
	 * IBTA 11.2.8.1: at least as many as were asked for.  perftest's ib_send_lat -e asks
	 * for one, and has two where an answer is told of before its request's completion.
	 */
	ring = tqp_cq_ring(udata, &resp.mi, max_t(u32, init->cqe, TQP_CQE_MIN));
	if (IS_ERR(ring))
		return PTR_ERR(ring);
	ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (ret) {
		tqp_ring_destroy(ring);
		return ret;
	}
	spin_lock_init(&cq->lock);
	mutex_init(&cq->resizing);
	cq->ring = ring;
	ibcq->cqe = ring->mask;
	return 0;
}

/* ---- what descriptors share ---- */

static void tqp_cq_fd_release(struct kref *ref)
{
	kfree(container_of(ref, struct tqp_cq_fd, ref));
}

void tqp_cq_fd_put(struct tqp_cq_fd *fd)
{
	kref_put(&fd->ref, tqp_cq_fd_release);
}

/* Who waits finds the CQ destroyed; nobody comes to it by a descriptor any more. */
static void tqp_cq_fd_sever(struct tqp_cq *cq)
{
	struct tqp_cq_fd *fd = cq->fd;

	if (!fd)
		return;
	spin_lock(&fd->lock);
	fd->cq = NULL;
	spin_unlock(&fd->lock);
	wake_up_all(&fd->wait);
	tqp_cq_fd_put(fd);
}

/* Every QP on the CQ is gone by now, and with it all who post. */
int tqp_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct tqp_cq *cq = to_tqp_cq(ibcq);

	tqp_cq_forget(cq);
	tqp_cq_fd_sever(cq);
	tqp_ring_destroy(cq->ring);
	return 0;
}

/* A resize on its way: what lies in the new ring are the old one's entries from @from on. */
struct tqp_cq_move {
	struct tqp_ring *old, *fresh;
	u32 from, at;
};

/* Up to TQP_CQ_MOVE_MAX entries more.  -EAGAIN: there are others; 0: the new ring is the CQ's. */
static int tqp_cq_move_some(struct tqp_cq *cq, struct tqp_cq_move *move)
{
	struct tqp_ring *old = move->old, *fresh = move->fresh;
	u32 count = (old->index - move->at) & old->mask;
	u32 polled = (old->index - tqp_ring_unpolled(old) - move->from) & old->mask;

	lockdep_assert_held(&cq->lock);
	if (fresh->index + count > fresh->mask)
		return -EINVAL;		/* it is too small, or they poll and we never get done */
	for (u32 n = min_t(u32, count, TQP_CQ_MOVE_MAX); n; n--) {
		memcpy(tqp_ring_entry(fresh, fresh->index++), tqp_ring_entry(old, move->at++),
		       sizeof(struct ib_uverbs_wc));
	}
	if (count > TQP_CQ_MOVE_MAX)
		return -EAGAIN;
	/* none but us has seen the new ring: what was polled meanwhile is polled there, too */
	fresh->buf->consumer_index = min(polled, fresh->index);
	tqp_ring_produce(fresh, 0);
	cq->ring = fresh;
	cq->ib.cqe = fresh->mask;
	return 0;
}

/* The old ring's completions go along; those that come meanwhile, too. */
static int tqp_cq_move(struct tqp_cq *cq, struct tqp_cq_move *move)
{
	unsigned long flags;
	int ret;

	lockdep_assert_held(&cq->resizing);
	move->old = cq->ring;	/* only a resize changes it */
	spin_lock_irqsave(&cq->lock, flags);
	move->from = move->old->index - tqp_ring_unpolled(move->old);
	move->at = move->from;
	spin_unlock_irqrestore(&cq->lock, flags);
	do {
		cond_resched();
		spin_lock_irqsave(&cq->lock, flags);
		ret = tqp_cq_move_some(cq, move);
		spin_unlock_irqrestore(&cq->lock, flags);
	} while (ret == -EAGAIN);
	return ret;
}

int tqp_resize_cq(struct ib_cq *ibcq, TQP_CQE_TYPE cqe, struct ib_udata *udata)
{
	struct rxe_resize_cq_resp resp = {};
	struct tqp_cq *cq = to_tqp_cq(ibcq);
	struct tqp_cq_move move = {};
	struct tqp_ring *fresh;
	int ret;

	if (!udata)
		return -EOPNOTSUPP;
	if (udata->outlen < sizeof(resp) || !cqe || (u32)cqe > TQP_CQE_MAX)
		return -EINVAL;
	fresh = tqp_cq_ring(udata, &resp.mi, cqe);
	if (IS_ERR(fresh))
		return PTR_ERR(fresh);
	/* Before the move: after it there is no way back. */
	ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (!ret) {
		mutex_lock(&cq->resizing);
		tqp_cq_unshare(cq);
		move.fresh = fresh;
		ret = tqp_cq_move(cq, &move);
		mutex_unlock(&cq->resizing);
	}
	tqp_ring_destroy(ret ? fresh : move.old);
	return ret;
}

int tqp_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags notify)
{
	struct tqp_cq *cq = to_tqp_cq(ibcq);
	unsigned long flags;
	int missed = 0;

	spin_lock_irqsave(&cq->lock, flags);
	tqp_cq_waits(cq);
	if (!cq->notify)
		tqp_cq_mark(cq);
	cq->notify |= notify & IB_CQ_SOLICITED_MASK;
	if ((notify & IB_CQ_REPORT_MISSED_EVENTS) && tqp_cq_unpolled(cq))
		missed = 1;
	spin_unlock_irqrestore(&cq->lock, flags);
	return missed;
}
