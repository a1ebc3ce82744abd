// SPDX-License-Identifier: GPL-2.0
/*
 * Trains: small SENDs of one length, one behind the other, share segments.
 *
 * The first goes to TCP like any message, but TCP is not told where it ends.
 * Those behind it are gathered from the send queue, and TCP gets them by one
 * call.  They are inline: nobody but TCP's own copy holds their bytes.
 */
#include "conn.h"

void tqp_train_seal(struct tqp_conn *conn)
{
	struct sk_buff *skb = tcp_write_queue_tail(conn->sk) ?: tcp_rtx_queue_tail(conn->sk);

	if (skb)
		TCP_SKB_CB(skb)->eor = 1;
	conn->train.open = false;
}

static bool tqp_train_fits(const struct tqp_conn *conn, const struct tqp_msg_rec *rec)
{
	return conn->cur.is_inline && rec->opcode == TCP_BTH_OP_SEND_ONLY && rec->length &&
	       conn->host_version == 1 && !conn->icrc && READ_ONCE(conn->peer_trains);
}

void tqp_train_join(struct tqp_conn *conn, struct tqp_msg_rec *rec)
{
	struct tqp_tx_train *train = &conn->train;
	bool fits = tqp_train_fits(conn, rec);

	rec->train_place = 0;
	if (fits && train->open && train->length == rec->length && train->flags == rec->flags &&
	    train->place + 1 < TCP_BTH_TRAIN_MAX_MESSAGES) {
		rec->train_place = ++train->place;
		return;
	}
	if (train->open || !conn->info.tx_messages)	/* plain bytes before the first */
		tqp_train_seal(conn);
	train->open = fits;
	train->place = 0;
	train->flags = rec->flags;
	train->length = rec->length;
}

/* ---- gathering ---- */

/* How many more of the send queue's next WQEs could go along? */
static u32 tqp_train_room(struct tqp_conn *conn)
{
	const struct tqp_tx_train *train = &conn->train;
	s16 credit = READ_ONCE(conn->peer_limit) - conn->tx_msn;
	u32 posted = tqp_ring_posted(conn->qp->sq, conn->sq_next);

	if (!train->open || conn->wqe.valid || credit <= 0 || !posted ||
	    conn->response_head != conn->response_tail)
		return 0;
	return min3(min3(posted, (u32)credit, tqp_msglog_room(&conn->log)),
		    TQP_TRAIN_BYTES / train->length,
		    (u32)TCP_BTH_TRAIN_MAX_MESSAGES - 1 - train->place);
}

/* The one copy of a WQE: false, if it is not like the train's messages. */
static bool tqp_train_copy(const struct tqp_tx_train *train, const struct rxe_send_wqe *from,
			   struct tqp_tx_msg *msg)
{
	u32 flags = READ_ONCE(from->wr.send_flags);
	u8 solicited = flags & IB_SEND_SOLICITED ? TCP_BTH_F_SOLICITED : 0;

	if (READ_ONCE(from->wr.opcode) != IB_WR_SEND || !(flags & IB_SEND_INLINE) ||
	    flags & IB_SEND_FENCE || solicited != train->flags ||
	    READ_ONCE(from->dma.length) != train->length)
		return false;
	memcpy(train->bytes + train->end, from->dma.inline_data, train->length);
	msg->wr_id = READ_ONCE(from->wr.wr_id);
	msg->signaled = flags & IB_SEND_SIGNALED;
	return true;
}

static void tqp_train_log(struct tqp_conn *conn, struct tqp_tx_msg *msg)
{
	struct tqp_tx_train *train = &conn->train;
	struct tqp_msg_rec *rec = tqp_msglog_next(&conn->log);

	*rec = (struct tqp_msg_rec) {
		.start_seq = tcp_sk(conn->sk)->write_seq + train->end,
		.length = train->length,
		.msn = conn->tx_msn++,
		.opcode = TCP_BTH_OP_SEND_ONLY,
		.flags = train->flags | TCP_BTH_F_MORE,
		.train_place = ++train->place,
	};
	conn->log_msg[conn->log.tail & conn->log.mask] = msg;
	tqp_msglog_commit(&conn->log);
	train->end += train->length;
}

static bool tqp_train_take(struct tqp_conn *conn)
{
	struct tqp_tx_msg *msg = &conn->tx[conn->sq_next];

	if (!tqp_train_copy(&conn->train, tqp_ring_entry(conn->qp->sq, conn->sq_next), msg))
		return false;
	tqp_tx_msg_light(msg, conn);
	msg->signaled |= conn->qp->sq_sig_all;
	msg->bytes = conn->train.length;
	msg->wc_opcode = IB_WC_SEND;
	tqp_train_log(conn, msg);
	conn->sq_next = (conn->sq_next + 1) & conn->qp->sq->mask;
	return true;
}

bool tqp_train_gather(struct tqp_conn *conn)
{
	struct tqp_tx_train *train = &conn->train;
	u32 room = tqp_train_room(conn), n = 0;

	if (room && !train->bytes)
		train->bytes = kmalloc(TQP_TRAIN_BYTES, GFP_KERNEL | __GFP_NOWARN);
	if (!room || !train->bytes)	/* then one by one */
		return false;
	while (n < room && tqp_train_take(conn))
		n++;
	if (n && !tqp_tx_follows(conn, conn->sq_next))
		conn->log.rec[(conn->log.tail - 1) & conn->log.mask].flags &= ~TCP_BTH_F_MORE;
	conn->info.tx_messages += n;
	tqp_count(conn->dev, TQP_C_tx_messages, n);
	tqp_count(conn->dev, TQP_C_tx_train_messages, n);
	return n;
}

int tqp_train_push(struct tqp_conn *conn)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct tqp_tx_train *train = &conn->train;
	struct kvec kv;
	int rc;

	if (!tqp_train_waits(conn))
		return 0;
	if (conn->log.rec[(conn->log.tail - 1) & conn->log.mask].flags & TCP_BTH_F_MORE)
		msg.msg_flags |= MSG_MORE;
	while (train->at < train->end) {
		kv.iov_base = train->bytes + train->at;
		kv.iov_len = train->end - train->at;
		iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, &kv, 1, kv.iov_len);
		rc = tcp_sendmsg_locked(conn->sk, &msg, kv.iov_len);
		if (rc < 0)
			return rc;
		train->at += rc;
		tqp_tx_account(conn, rc, true);
	}
	train->at = 0;
	train->end = 0;
	return 0;
}
