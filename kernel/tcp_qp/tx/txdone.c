// SPDX-License-Identifier: GPL-2.0
/*
 * When is a send done?  When TCP has the acknowledgement for its last byte
 * *and* no skb holds its pages: either alone is not enough, because a copy of
 * the skb may free the pages early, and a driver may hold them late.
 *
 * The ubuf_info's count holds both: one for the sender until all bytes are in
 * TCP, one for each message until it is acknowledged, one for each response
 * that is awaited, one for each skb.  Of a train that is sent from where it lies
 * the lead has all of these, and all of its messages are done when they are gone;
 * each knows by itself whether it was acknowledged.  The one skb of TCP's with these
 * pages that has no count, a probe of the MTU, never leaves as it is (socket/xmit.c).
 */
#include "memory/memory.h"
#include "offload/offload.h"
#include "tx/tx.h"

enum {
	TQP_TX_ACKED_AT_ONCE = 256,	/* messages of copied trains, interrupts off */
};

static void tqp_post_send_wc(struct tqp_conn *conn, struct tqp_tx_msg *msg,
			     enum ib_wc_status status)
{
	struct ib_uverbs_wc wc = {
		.wr_id = msg->wr_id,
		.status = status,
		.opcode = msg->wc_opcode,
		.byte_len = msg->bytes,
		.qp_num = conn->qpn,
	};

	if (msg->nic) {
		msg->nic = false;
		tqp_sends_done(conn, &wc);
	} else if (msg->signaled || status) {
		tqp_cq_post(conn->qp->scq, &wc, false);
	}
}

/* Completions go up in SQ order, whatever order the pages came back in; slots before them. */
static void tqp_complete_in_order(struct tqp_conn *conn)
{
	struct tqp_ring *sq = conn->qp->sq;
	struct tqp_tx_msg *msg;
	u32 count = 0;
	bool counted;

	lockdep_assert_held(&conn->tx.done_lock);
	for (;;) {
		msg = &conn->tx.msgs[(sq->index + count) & sq->mask];
		if (!msg->done)
			break;
		msg->done = false;
		count++;
		counted = msg->counted;
		msg->counted = false;
		if (msg->signaled) {
			tqp_ring_consume_all(sq, count);
			count = 0;
			tqp_post_send_wc(conn, msg, IB_WC_SUCCESS);
		}
		if (counted)	/* from here on the NIC may complete what answers it */
			WRITE_ONCE(conn->tx.reported, conn->tx.reported + 1);
	}
	if (count)
		tqp_ring_consume_all(sq, count);
}

/*
 * A refused WQE: everything before it may still complete normally, so the
 * error completion waits its turn behind them.
 */
void tqp_tx_finish_bad(struct tqp_conn *conn)
{
	struct ib_uverbs_wc wc = {
		.wr_id = conn->tx.bad_wr_id,
		.status = conn->tx.bad_status,
		.qp_num = conn->qpn,
	};
	unsigned long flags;
	bool fatal = false;

	sock_owned_by_me(conn->sk);
	if (!conn->tx.failed || !conn->qp)
		return;
	spin_lock_irqsave(&conn->tx.done_lock, flags);
	if (!conn->tx.dead && conn->qp->sq->index == conn->tx.sq_next) {
		tqp_cq_post(conn->qp->scq, &wc, false);
		tqp_ring_consume(conn->qp->sq);
		conn->tx.sq_next = conn->qp->sq->index;
		conn->tx.dead = true;
		fatal = true;
	}
	spin_unlock_irqrestore(&conn->tx.done_lock, flags);
	if (fatal)
		tqp_conn_fail(conn, TCP_QP_REASON_LOCAL_ERROR);
}

/* The @i-th of those that are done with @lead. */
static struct tqp_tx_msg *tqp_tx_behind(const struct tqp_tx_msg *lead, u32 i)
{
	const struct tqp_tx *tx = &lead->conn->tx;

	return &tx->msgs[(lead - tx->msgs + i) & tx->sq_mask];
}

/* Messages of a train mostly have one region: their references are given back together. */
struct tqp_unpinned {
	struct tqp_mr *mr;
	u32 refs;
};

static void tqp_unpin_end(struct tqp_unpinned *unpinned)
{
	if (unpinned->refs)
		tqp_mr_put_many(unpinned->mr, unpinned->refs);
	unpinned->refs = 0;
}

static inline void tqp_unpin_gather(struct tqp_tx_msg *msg, struct tqp_unpinned *unpinned)
{
	while (msg->nr_mrs) {
		struct tqp_mr *mr = msg->mrs[--msg->nr_mrs];

		if (mr != unpinned->mr) {
			tqp_unpin_end(unpinned);
			unpinned->mr = mr;
		}
		unpinned->refs++;
	}
}

static void tqp_unpin(struct tqp_tx_msg *msg)
{
	struct tqp_unpinned unpinned = {};

	tqp_unpin_gather(msg, &unpinned);
	tqp_unpin_end(&unpinned);
}

static void tqp_wqe_done(struct tqp_tx_msg *lead)
{
	struct tqp_conn *conn = lead->conn;
	struct tqp_unpinned unpinned = {};
	unsigned long flags;
	bool kick;

	for (u32 i = 0; i < lead->together; i++)
		tqp_unpin_gather(tqp_tx_behind(lead, i), &unpinned);
	tqp_unpin_end(&unpinned);
	if (lead->copies)
		tqp_tx_copies_put(lead);
	spin_lock_irqsave(&conn->tx.done_lock, flags);
	if (lead->loaded && !conn->tx.dead) {
		for (u32 i = 0; i < lead->together; i++)
			tqp_tx_behind(lead, i)->done = true;
		tqp_complete_in_order(conn);
	}
	kick = READ_ONCE(conn->tx.failed) && !conn->tx.dead;
	spin_unlock_irqrestore(&conn->tx.done_lock, flags);
	if (kick)
		tqp_tx_kick(conn);
}

static void tqp_tx_msg_done(struct tqp_tx_msg *msg)
{
	struct tqp_conn *conn = msg->conn;
	bool copied = msg->copied;

	if (msg->is_response)
		tqp_response_done(msg);
	else
		tqp_wqe_done(msg);
	if (copied)		/* @msg may be another one's by now */
		return;
	if (atomic_dec_and_test(&conn->tx.live)) {	/* a full barrier: we see who waits */
		wake_up_all(&conn->wait);
		tqp_end_wake(conn);
	}
	tqp_conn_put(conn);
}

void tqp_tx_msg_put(struct tqp_tx_msg *msg)
{
	if (refcount_dec_and_test(&msg->ubuf.refcnt))
		tqp_tx_msg_done(msg);
}

void tqp_tx_msg_undo(struct tqp_tx_msg *msg)
{
	if (msg->lead == msg)
		tqp_tx_msg_put(msg);
	else
		tqp_unpin(msg);
}

static void tqp_ubuf_complete(struct sk_buff *skb, struct ubuf_info *ubuf, bool success)
{
	tqp_tx_msg_put(container_of(ubuf, struct tqp_tx_msg, ubuf));
}

static const struct ubuf_info_ops tqp_ubuf_ops = { .complete = tqp_ubuf_complete };

static void tqp_tx_msg_clear(struct tqp_tx_msg *msg, struct tqp_conn *conn)
{
	refcount_set(&msg->ubuf.refcnt, 1);
	msg->conn = conn;
	msg->lead = msg;
	msg->together = 1;
	msg->nr_mrs = 0;
	msg->copies = 0;
	msg->unacked = 0;
	msg->awaited = 0;
	msg->is_response = false;
	msg->copied = false;
	msg->loaded = false;
}

/* The one reference is the sender's. */
void tqp_tx_msg_init(struct tqp_tx_msg *msg, struct tqp_conn *conn)
{
	tqp_tx_msg_clear(msg, tqp_conn_get(conn));
	msg->ubuf.ops = &tqp_ubuf_ops;
	msg->ubuf.flags = SKBFL_ZEROCOPY_FRAG | SKBFL_DONT_ORPHAN;
	atomic_inc(&conn->tx.live);
}

/* The one reference is the acknowledgement's, which leaves all else as it is. */
void tqp_tx_msg_init_copied(struct tqp_tx_msg *msg, struct tqp_conn *conn)
{
	if (!msg->copied)
		tqp_tx_msg_clear(msg, conn);
	msg->unacked = 1;
	msg->copied = true;
	msg->loaded = true;
}

/* It has no references of its own. */
void tqp_tx_msg_init_behind(struct tqp_tx_msg *msg, struct tqp_tx_msg *lead)
{
	tqp_tx_msg_clear(msg, lead->conn);
	msg->lead = lead;
}

/* As tqp_tx_msg_put() for each message of a train that was copied; how many of @count there are. */
static u32 tqp_train_acked(struct tqp_conn *conn, u32 index, u32 count)
{
	struct tqp_tx_msg *msg;
	unsigned long flags;
	bool kick;
	u32 n = 0;

	spin_lock_irqsave(&conn->tx.done_lock, flags);
	for (; n < count; n++) {
		msg = conn->tx.log_msg[(index + n) & conn->tx.log.mask];
		if (!msg || !msg->copied)
			break;
		msg->unacked = 0;
		msg->done = !conn->tx.dead;
	}
	if (!conn->tx.dead)
		tqp_complete_in_order(conn);
	kick = READ_ONCE(conn->tx.failed) && !conn->tx.dead;
	spin_unlock_irqrestore(&conn->tx.done_lock, flags);
	if (kick)
		tqp_tx_kick(conn);
	return n;
}

/* The same for messages with one lead, which go back to the application when no skb holds them. */
static u32 tqp_lead_acked(struct tqp_conn *conn, u32 index, u32 count)
{
	struct tqp_tx_msg *msg = conn->tx.log_msg[index & conn->tx.log.mask], *lead = msg->lead;
	u32 n = 0;

	do {
		msg->unacked--;
		if (++n == count)
			break;
		msg = conn->tx.log_msg[(index + n) & conn->tx.log.mask];
	} while (msg && !msg->copied && msg->lead == lead);
	if (refcount_sub_and_test(n, &lead->ubuf.refcnt))
		tqp_tx_msg_done(lead);
	return n;
}

/*
 * @count of the oldest records left the log; @index is the first one's place.  Those of trains in
 * slices, as if they had been acknowledged one after the other: each is with interrupts off.
 */
static void tqp_records_acked(struct tqp_conn *conn, u32 index, u32 count)
{
	while (count) {
		struct tqp_tx_msg *msg = conn->tx.log_msg[index & conn->tx.log.mask];
		u32 n = 1;

		if (msg)
			n = msg->copied ?
			    tqp_train_acked(conn, index, min_t(u32, count, TQP_TX_ACKED_AT_ONCE)) :
			    tqp_lead_acked(conn, index, count);
		index += n;
		count -= n;
	}
}

void tqp_clean_acked(struct sock *sk, u32 acked_seq)
{
	struct tqp_conn *conn = tqp_conn_of(sk);
	u32 head, acked;

	if (!conn)
		return;
	head = conn->tx.log.head;
	acked = tqp_msglog_ack(&conn->tx.log, acked_seq);
	tqp_records_acked(conn, head, acked);
	if (!acked)
		return;
	if (tqp_tx_waits(&conn->tx, TQP_TX_WAIT_LOG))
		tqp_tx_kick(conn);
	if (conn->state == TQP_CONN_DEAD && tqp_msglog_empty(&conn->tx.log))
		tqp_end_wake(conn);
}

bool tqp_tx_outstanding(const struct tqp_conn *conn)
{
	return !tqp_msglog_empty(&conn->tx.log) || conn->tx.cur.active || conn->requester.out ||
	       (conn->tx.wqe.valid && conn->tx.wqe.loaded) ||
	       conn->responder.head != conn->responder.tail;
}

/* The sender's reference of the WQE at sq_next, if it was loaded. */
static void tqp_drop_current(struct tqp_conn *conn)
{
	struct tqp_tx_cur *cur = &conn->tx.cur;

	if (cur->active && cur->msg && (cur->msg->is_response || cur->nr_bvecs))
		tqp_tx_msg_put(cur->msg);
	cur->active = false;
	if (conn->tx.wqe.valid && conn->tx.wqe.loaded)
		tqp_tx_msg_put(&conn->tx.msgs[conn->tx.sq_next & conn->tx.sq_mask]);
	conn->tx.wqe.valid = false;
	while (conn->responder.head != conn->responder.tail)
		tqp_tx_msg_put(&conn->responder.responses[conn->responder.head++ % TQP_RESPONSES_MAX].msg);
}

/*
 * No acknowledgement will come any more: the connection was aborted or the
 * socket is going.  Nothing that is dropped completes by it: it did not succeed.
 * What drivers still hold ends by itself; who gives memory back to the
 * application waits for it.
 */
void tqp_tx_drop(struct tqp_conn *conn)
{
	u32 head = conn->tx.log.head, left = conn->tx.log.tail - conn->tx.log.head;

	/* callers: socket lock held, or the socket is being destroyed */
	tqp_tx_die(conn);
	conn->tx.log.head = conn->tx.log.tail;
	for (; left; left--, head++)	/* unacked stays: they were not */
		if (conn->tx.log_msg[head & conn->tx.log.mask])
			tqp_tx_msg_put(conn->tx.log_msg[head & conn->tx.log.mask]->lead);
	tqp_read_drop(conn);
	tqp_drop_current(conn);
}

void tqp_tx_release_timeout(struct tqp_conn *conn)
{
	tqp_count(conn->dev, TQP_C_tx_release_timeouts, 1);
	dev_warn_ratelimited(&conn->dev->ib.dev, "a driver still holds pages of QP 0x%x\n",
			     conn->qpn);
}

static enum ib_wc_status tqp_sent_status(const struct tqp_conn *conn,
					 const struct tqp_tx_msg *msg)
{
	if (msg == conn->end.failed_msg)
		return conn->end.failed_status;
	return !msg->unacked && !msg->awaited ? IB_WC_SUCCESS : IB_WC_WR_FLUSH_ERR;
}

/*
 * What was handed to TCP, in SQ order: the peer has it, or it was the one that
 * failed, or nobody knows.
 */
void tqp_tx_complete_sent(struct tqp_conn *conn)
{
	struct tqp_ring *sq = conn->qp->sq;

	while (sq->index != conn->tx.sq_next) {
		struct tqp_tx_msg *msg = &conn->tx.msgs[sq->index];

		tqp_post_send_wc(conn, msg, tqp_sent_status(conn, msg));
		tqp_ring_consume(sq);
	}
	/* partly sent */
	if (conn->end.failed_msg == &conn->tx.msgs[sq->index] && tqp_ring_posted(sq, sq->index)) {
		tqp_post_send_wc(conn, conn->end.failed_msg, conn->end.failed_status);
		tqp_ring_consume(sq);
	}
}
