// SPDX-License-Identifier: GPL-2.0
/*
 * When is a send done?  When TCP has the acknowledgement for its last byte
 * *and* no skb holds its pages: either alone is not enough, because a copy of
 * the skb may free the pages early, and a driver may hold them late.
 *
 * The ubuf_info's count holds both: one for the sender until all bytes are in
 * TCP, one for the acknowledgement, one for each skb.
 */
#include "conn.h"

static void tqp_post_send_wc(struct tqp_conn *conn, const struct tqp_tx_msg *msg)
{
	struct ib_uverbs_wc wc = {
		.wr_id = msg->wr_id,
		.status = IB_WC_SUCCESS,
		.opcode = msg->wc_opcode,
		.byte_len = msg->bytes,
		.qp_num = conn->qpn,
	};

	if (msg->signaled)
		tqp_cq_post(conn->qp->scq, &wc, false);
}

/* Completions go up in SQ order, whatever order the pages came back in. */
static void tqp_complete_in_order(struct tqp_conn *conn)
{
	struct tqp_ring *sq = conn->qp->sq;

	lockdep_assert_held(&conn->done_lock);
	while (conn->tx[sq->index & sq->mask].done) {
		struct tqp_tx_msg *msg = &conn->tx[sq->index & sq->mask];

		msg->done = false;
		tqp_post_send_wc(conn, msg);
		tqp_ring_consume(sq);
	}
}

/*
 * A refused WQE: everything before it may still complete normally, so the
 * error completion waits its turn behind them.
 */
void tqp_tx_finish_bad(struct tqp_conn *conn)
{
	struct ib_uverbs_wc wc = {
		.wr_id = conn->tx_bad_wr_id,
		.status = conn->tx_bad_status,
		.qp_num = conn->qpn,
	};
	unsigned long flags;
	bool fatal = false;

	sock_owned_by_me(conn->sk);
	if (!conn->tx_failed || !conn->qp)
		return;
	spin_lock_irqsave(&conn->done_lock, flags);
	if (!conn->tx_dead && conn->qp->sq->index == conn->sq_next) {
		tqp_cq_post(conn->qp->scq, &wc, false);
		tqp_ring_consume(conn->qp->sq);
		conn->tx_dead = true;
		fatal = true;
	}
	spin_unlock_irqrestore(&conn->done_lock, flags);
	if (fatal)
		tqp_conn_fail(conn, TCP_QP_REASON_LOCAL_ERROR);
}

static void tqp_tx_msg_done(struct tqp_tx_msg *msg)
{
	struct tqp_conn *conn = msg->conn;
	unsigned long flags;
	bool kick;

	while (msg->nr_mrs)
		tqp_mr_put(msg->mrs[--msg->nr_mrs]);
	spin_lock_irqsave(&conn->done_lock, flags);
	if (msg->loaded && !conn->tx_dead) {
		msg->done = true;
		tqp_complete_in_order(conn);
	}
	kick = READ_ONCE(conn->tx_failed) && !conn->tx_dead;
	spin_unlock_irqrestore(&conn->done_lock, flags);
	if (kick)
		tqp_tx_kick(conn);
	tqp_conn_put(conn);
}

void tqp_tx_msg_put(struct tqp_tx_msg *msg)
{
	if (refcount_dec_and_test(&msg->ubuf.refcnt))
		tqp_tx_msg_done(msg);
}

static void tqp_ubuf_complete(struct sk_buff *skb, struct ubuf_info *ubuf, bool success)
{
	tqp_tx_msg_put(container_of(ubuf, struct tqp_tx_msg, ubuf));
}

static const struct ubuf_info_ops tqp_ubuf_ops = { .complete = tqp_ubuf_complete };

void tqp_tx_msg_init(struct tqp_tx_msg *msg, struct tqp_conn *conn)
{
	msg->ubuf.ops = &tqp_ubuf_ops;
	msg->ubuf.flags = SKBFL_ZEROCOPY_FRAG | SKBFL_DONT_ORPHAN;
	refcount_set(&msg->ubuf.refcnt, 2);	/* sender, acknowledgement */
	msg->conn = tqp_conn_get(conn);
	msg->nr_mrs = 0;
	msg->loaded = false;
}

/* The ring index after the last send that has a place in the stream. */
static u32 tqp_tx_end(const struct tqp_conn *conn)
{
	return conn->cur.active ? conn->sq_next + 1 : conn->sq_next;
}

void tqp_clean_acked(struct sock *sk, u32 acked_seq)
{
	struct tqp_conn *conn = tqp_conn_of(sk);
	u32 mask = conn->log.mask;

	if (!conn)
		return;
	tqp_msglog_ack(&conn->log, acked_seq);
	while ((conn->tx_acked & mask) != (tqp_tx_end(conn) & mask)) {
		struct tqp_tx_msg *msg = &conn->tx[conn->tx_acked & mask];

		if (before(acked_seq, msg->end_seq))
			break;
		conn->tx_acked++;
		tqp_tx_msg_put(msg);
	}
}

bool tqp_tx_outstanding(const struct tqp_conn *conn)
{
	return (conn->tx_acked & conn->log.mask) != (tqp_tx_end(conn) & conn->log.mask);
}

/*
 * No acknowledgement will come any more: the connection was aborted or the
 * socket is going.  What drivers still hold ends by itself.
 */
void tqp_tx_drop(struct tqp_conn *conn)
{
	bool active = conn->cur.active;

	/* callers: socket lock held, or the socket is being destroyed */
	while (tqp_tx_outstanding(conn))
		tqp_tx_msg_put(&conn->tx[conn->tx_acked++ & conn->log.mask]);
	if (active) {
		conn->cur.active = false;
		conn->sq_next = (conn->sq_next + 1) & conn->log.mask;
		tqp_tx_msg_put(conn->cur.msg);
	}
}
