// SPDX-License-Identifier: GPL-2.0
/*
 * Trains: small SENDs of one length, one behind the other, share segments.
 *
 * Two and more of a kind are gathered from the send queue, whether inline or
 * not, and TCP gets them by one call, without being told where each of them
 * ends.  One alone that is inline may begin or go on a train, too.  All are
 * copied: for so few bytes anything else costs more.
 */
#include "memory/memory.h"
#include "tx/tx.h"

/* No segment holds bytes of TCP's so far and of what comes next. */
static void tqp_train_seal(struct tqp_conn *conn)
{
	struct sk_buff *skb = tcp_write_queue_tail(conn->sk) ?: tcp_rtx_queue_tail(conn->sk);

	if (skb)
		TCP_SKB_CB(skb)->eor = 1;
}

static bool tqp_train_may(const struct tqp_conn *conn)
{
	return conn->host_version == 1 && !conn->icrc && READ_ONCE(conn->handshake.peer_trains);
}

static void tqp_train_begin(struct tqp_conn *conn, bool open, u8 flags, u32 length)
{
	struct tqp_tx_train *train = &conn->tx.train;

	if (train->open || !conn->info.tx_messages)	/* plain bytes before the first */
		tqp_train_seal(conn);
	train->open = open;
	train->flags = flags;
	train->length = length;
	train->messages = 0;
}

void tqp_train_join(struct tqp_conn *conn, struct tqp_msg_rec *rec, bool copied)
{
	struct tqp_tx_train *train = &conn->tx.train;
	bool fits = copied && rec->opcode == TCP_BTH_OP_SEND_ONLY && rec->length &&
		    tqp_train_may(conn);

	if (!fits || !train->open || train->length != rec->length || train->flags != rec->flags ||
	    train->messages == TCP_BTH_TRAIN_MAX_MESSAGES)
		tqp_train_begin(conn, fits, rec->flags, rec->length);
	rec->train_place = train->messages++;
}

/* ---- gathering ---- */

/* How many of the send queue's next WQEs could go now? */
static u32 tqp_train_posted(struct tqp_conn *conn)
{
	s16 credit = READ_ONCE(conn->credit.peer_limit) - conn->tx.msn;

	if (conn->tx.wqe.valid || credit <= 0 || conn->responder.head != conn->responder.tail ||
	    !tqp_train_may(conn))
		return 0;
	return min3(tqp_ring_posted(conn->qp->sq, conn->tx.sq_next), (u32)credit,
		    tqp_msglog_room(&conn->tx.log));
}

/* What a WQE that may be of a train says of itself, but its bytes; copied once. */
struct tqp_train_wqe {
	bool is_inline;
	bool signaled;
	u8 flags;			/* as struct tqp_tx_train */
	u32 length;
	struct ib_sge sge;		/* unless is_inline */
};

static void tqp_train_sge(const struct rxe_send_wqe *from, struct tqp_train_wqe *wqe)
{
	wqe->sge.addr = READ_ONCE(from->dma.sge[0].addr);
	wqe->sge.length = READ_ONCE(from->dma.sge[0].length);
	wqe->sge.lkey = READ_ONCE(from->dma.sge[0].lkey);
	wqe->length = wqe->sge.length;
}

/* False: it is the general path's. */
static __always_inline bool tqp_train_look(const struct tqp_conn *conn,
					   const struct rxe_send_wqe *from,
					   struct tqp_train_wqe *wqe)
{
	const struct tqp_qp *qp = conn->qp;
	u32 flags = READ_ONCE(from->wr.send_flags);

	if (READ_ONCE(from->wr.opcode) != IB_WR_SEND || flags & IB_SEND_FENCE)
		return false;
	wqe->is_inline = flags & IB_SEND_INLINE;
	wqe->signaled = flags & IB_SEND_SIGNALED || qp->sq_sig_all;
	wqe->flags = flags & IB_SEND_SOLICITED ? TCP_BTH_F_SOLICITED : 0;
	if (wqe->is_inline)
		wqe->length = READ_ONCE(from->dma.length);
	else if (READ_ONCE(from->dma.num_sge) == 1 && qp->cap.max_send_sge)
		tqp_train_sge(from, wqe);
	else
		return false;
	return wqe->length && wqe->length <= TQP_TRAIN_MESSAGE_BYTES &&
	       (!wqe->is_inline || wqe->length <= qp->cap.max_inline_data);
}

static bool tqp_train_fits(const struct tqp_tx_train *train, const struct tqp_train_wqe *wqe)
{
	return train->open && wqe->length == train->length && wqe->flags == train->flags &&
	       train->messages < TCP_BTH_TRAIN_MAX_MESSAGES &&
	       train->end + wqe->length <= TQP_TRAIN_BYTES;
}

/* False: no right to these bytes; the general path says so. */
static bool tqp_train_copy_sge(struct tqp_conn *conn, const struct ib_sge *sge, u8 *to)
{
	u32 done = 0, run;
	const void *from;
	struct tqp_mr *mr;

	rcu_read_lock();
	mr = tqp_mr_lookup(conn->dev, sge->lkey);
	if (!mr || tqp_mr_check(mr, conn->qp->pd->pdn, sge->addr, sge->length, 0))
		goto out;
	for (; done < sge->length; done += run) {
		from = tqp_mr_kaddr(mr, sge->addr + done, sge->length - done, &run);
		memcpy(to + done, from, run);
	}
out:
	rcu_read_unlock();
	return done == sge->length;
}

static bool tqp_train_copy(struct tqp_conn *conn, const struct rxe_send_wqe *from,
			   const struct tqp_train_wqe *wqe)
{
	struct tqp_tx_train *train = &conn->tx.train;
	u32 length = wqe->length;
	u8 *to;

	if (!train->bytes)
		train->bytes = kmalloc(TQP_TRAIN_BYTES, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!train->bytes)	/* then one by one */
		return false;
	to = train->bytes + train->end;
	if (!wqe->is_inline)
		return tqp_train_copy_sge(conn, &wqe->sge, to);
	OPTIMIZER_HIDE_VAR(length);	/* memcpy()'s own way, not the compiler's `rep movs` */
	memcpy(to, from->dma.inline_data, length);
	return true;
}

/* There is room: tqp_train_posted() looked. */
static void tqp_train_log(struct tqp_conn *conn, struct tqp_tx_msg *msg)
{
	struct tqp_tx_train *train = &conn->tx.train;
	u32 at = conn->tx.log.tail & conn->tx.log.mask;

	conn->tx.log.rec[at] = (struct tqp_msg_rec) {
		.start_seq = tcp_sk(conn->sk)->write_seq + train->end,
		.length = train->length,
		.msn = conn->tx.msn++,
		.opcode = TCP_BTH_OP_SEND_ONLY,
		.flags = train->flags | TCP_BTH_F_MORE,
		.train_place = train->messages++,
	};
	conn->tx.log_msg[at] = msg;
	tqp_msglog_commit(&conn->tx.log);
	train->end += train->length;
}

static bool tqp_train_take(struct tqp_conn *conn)
{
	u32 index = conn->tx.sq_next;
	const struct rxe_send_wqe *from = tqp_ring_entry(conn->qp->sq, index);
	struct tqp_tx_msg *msg = &conn->tx.msgs[index];
	struct tqp_train_wqe wqe;

	if (!tqp_train_look(conn, from, &wqe) || !tqp_train_fits(&conn->tx.train, &wqe) ||
	    !tqp_train_copy(conn, from, &wqe))
		return false;
	tqp_tx_msg_light(msg, conn);
	msg->wr_id = READ_ONCE(from->wr.wr_id);
	msg->signaled = wqe.signaled;
	msg->bytes = wqe.length;
	msg->wc_opcode = IB_WC_SEND;
	tqp_train_log(conn, msg);
	conn->tx.sq_next = (index + 1) & conn->qp->sq->mask;
	return true;
}

/* Are the next two of one kind, but not of the train before them? */
static bool tqp_train_found(struct tqp_conn *conn)
{
	const struct tqp_ring *sq = conn->qp->sq;
	struct tqp_train_wqe first, second;

	if (!tqp_train_look(conn, tqp_ring_entry(sq, conn->tx.sq_next), &first) ||
	    tqp_train_fits(&conn->tx.train, &first) ||
	    !tqp_train_look(conn, tqp_ring_entry(sq, conn->tx.sq_next + 1), &second) ||
	    first.length != second.length ||
	    first.flags != second.flags)
		return false;
	tqp_train_begin(conn, true, first.flags, first.length);
	return true;
}

static u32 tqp_train_fill(struct tqp_conn *conn, u32 posted)
{
	u32 n = 0;

	while (n < posted && tqp_train_take(conn))
		n++;
	return n;
}

bool tqp_train_gather(struct tqp_conn *conn)
{
	u32 posted = tqp_train_posted(conn), n;

	n = tqp_train_fill(conn, posted);
	if (!n && posted > 1 && tqp_train_found(conn))
		n = tqp_train_fill(conn, posted);
	if (!n)
		return false;
	if (!tqp_tx_follows(conn, conn->tx.sq_next))
		tqp_msglog_newest(&conn->tx.log)->flags &= ~TCP_BTH_F_MORE;
	tqp_tx_count(conn, n);
	tqp_count(conn->dev, TQP_C_tx_train_messages, n);
	return true;
}

int tqp_train_push(struct tqp_conn *conn)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct tqp_tx_train *train = &conn->tx.train;
	struct kvec kv;
	int rc;

	if (!tqp_train_waits(conn))
		return 0;
	if (tqp_msglog_newest(&conn->tx.log)->flags & TCP_BTH_F_MORE)
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
