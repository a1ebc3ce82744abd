// SPDX-License-Identifier: GPL-2.0
/*
 * Send queue to TCP: take WQEs in order, check them, log the message, hand
 * its pages to tcp_sendmsg_locked() without copying.
 */
#include <linux/bvec.h>
#include "memory/memory.h"
#include "object/trace.h"
#include "tx/wqe.h"

void tqp_tx_kick(struct tqp_conn *conn)
{
	if (tqp_conn_tryget(conn) && !queue_work(tqp_wq, &conn->tx.work))
		tqp_conn_put(conn);
}

void tqp_tx_forget_time(struct tqp_conn *conn)
{
	if (cancel_delayed_work(&conn->credit.probe_work))
		tqp_conn_put(conn);
}

/* Nothing but time will wake us; the next run asks for credit again, if it still has to. */
void tqp_tx_wait_memory(struct tqp_conn *conn)
{
	tqp_tx_wait(&conn->tx, TQP_TX_WAIT_MEMORY);
	tqp_count(conn->dev, TQP_C_tx_memory_waits, 1);
	tqp_tx_forget_time(conn);
	tqp_queue_delayed(conn, &conn->credit.probe_work, TQP_MEMORY_WAIT_MS);
}

/* A train, which always is the last message that TCP is told of, says it of its last one by itself. */
static bool tqp_tx_more(const struct tqp_conn *conn)
{
	return !conn->tx.cur.msg->is_response && !conn->tx.cur.nr_bvecs &&
	       tqp_wqe_follows(conn, conn->tx.sq_next + 1);
}

/* The record of @source's message, where it starts in the stream. */
static struct tqp_msg_rec *tqp_tx_log(struct tqp_conn *conn, const struct tqp_tx_source *source)
{
	struct tqp_msg_rec *rec = tqp_msglog_next(&conn->tx.log);

	if (WARN_ON_ONCE(!rec)) {	/* tqp_tx_next() looked */
		WRITE_ONCE(conn->tx.failed, true);
		return NULL;
	}
	*rec = source->rec;
	rec->start_seq = tcp_sk(conn->sk)->write_seq;
	tqp_train_join(conn, rec, source->data);
	conn->tx.log_msg[conn->tx.log.tail & conn->tx.log.mask] = source->msg;
	tqp_msglog_commit(&conn->tx.log);
	trace_tqp_tx_message(conn->qpn, rec->msn, rec->opcode, rec->start_seq, rec->length);
	return rec;
}

void tqp_tx_begin(struct tqp_conn *conn, const struct tqp_tx_source *source)
{
	static const u8 empty;		/* a message of no bytes takes one byte of the stream */
	struct tqp_msg_rec *rec = tqp_tx_log(conn, source);
	struct tqp_tx_msg *msg = source->msg;

	if (!rec)
		return;
	conn->tx.cur = (struct tqp_tx_cur) {
		.active = true,
		.ends_wqe = source->ends_wqe,
		.nr_sge = source->nr_sge,
		.left = tqp_msg_stream_bytes(rec->length),
		.msg = msg,
		.sges = source->sges,
		.data = rec->length ? source->data : &empty,
	};
	if (!msg)
		return;
	if (msg->nic)
		tqp_sends_post(conn, msg, rec);
	refcount_inc(&msg->ubuf.refcnt);
	msg->unacked++;
	if (tqp_tx_more(conn))		/* nothing of it was sent yet */
		rec->flags |= TCP_BTH_F_MORE;
}

void tqp_tx_taken(struct tqp_conn *conn)
{
	struct tqp_tx_cur *cur = &conn->tx.cur;

	cur->active = false;
	if (!cur->msg)
		return;
	if (!cur->nr_bvecs)		/* else they were counted */
		tqp_tx_count(conn, 1);
	if (cur->msg->is_response || cur->nr_bvecs)
		tqp_tx_msg_put(cur->msg);
	else if (cur->ends_wqe)
		tqp_wqe_sent(conn);
}

/* ---- pages into TCP ---- */

/* skb frags that point at the application's pages; TCP takes no page references. */
static int tqp_fill_skb(struct sk_buff *skb, struct iov_iter *from, size_t length)
{
	struct skb_shared_info *shinfo = skb_shinfo(skb);
	int frag = shinfo->nr_frags;
	struct bvec_iter bi = {
		.bi_size = min_t(size_t, from->count, length),
		.bi_offset = from->iov_offset,
	};
	unsigned long truesize = 0;
	u32 copied = 0;

	if (!frag)
		shinfo->flags |= SKBFL_MANAGED_FRAG_REFS;
	else if (unlikely(!skb_zcopy_managed(skb)))
		return -EMSGSIZE;
	while (bi.bi_size && frag < MAX_SKB_FRAGS) {
		struct bio_vec v = mp_bvec_iter_bvec(from->bvec, bi);

		copied += v.bv_len;
		truesize += PAGE_ALIGN(v.bv_len + v.bv_offset);
		__skb_fill_page_desc_noacc(shinfo, frag++, v.bv_page, v.bv_offset, v.bv_len);
		bvec_iter_advance_single(from->bvec, &bi, v.bv_len);
	}
	shinfo->nr_frags = frag;
	from->bvec += bi.bi_idx;
	from->nr_segs -= bi.bi_idx;
	from->count -= copied;
	from->iov_offset = bi.bi_offset;
	skb->data_len += copied;
	skb->len += copied;
	skb->truesize += truesize;
	return bi.bi_size ? -EMSGSIZE : 0;
}

/* @bvecs[TQP_SEND_BVECS] from the current place on; *@bytes covered, the place unchanged. */
static u32 tqp_next_bvecs(struct tqp_conn *conn, struct bio_vec *bvecs, u32 *bytes)
{
	const struct tqp_tx_cur *cur = &conn->tx.cur;
	u32 off = cur->sge_off, done;
	u32 n = 0;

	*bytes = 0;
	for (int i = cur->sge; i < cur->nr_sge && n < TQP_SEND_BVECS; i++, off = 0) {
		u32 want = min_t(u32, cur->sges[i].length - off, TQP_SEND_PIECE_BYTES - *bytes);

		n = tqp_mr_bvecs(cur->msg->mrs[i], cur->sges[i].addr + off, want, bvecs, n,
				 TQP_SEND_BVECS, &done);
		*bytes += done;
		if (done < cur->sges[i].length - off)
			break;
	}
	return n;
}

static void tqp_cur_advance(struct tqp_tx_cur *cur, u32 bytes)
{
	cur->left -= bytes;
	if (cur->data || cur->nr_bvecs) {
		cur->sge_off += bytes;
		return;
	}
	while (bytes) {
		u32 step = min(bytes, cur->sges[cur->sge].length - cur->sge_off);

		cur->sge_off += step;
		bytes -= step;
		if (cur->sge_off == cur->sges[cur->sge].length) {
			cur->sge++;
			cur->sge_off = 0;
		}
	}
}

/*
 * Of a message of which more follows, whole segments: TCP would send what is left over by itself,
 * and mark it, and each skb that it finds full, as what nothing follows.  Who receives would be told
 * of each, and not of a burst of them.
 */
static u32 tqp_whole_segments(const struct tqp_conn *conn, u32 bytes)
{
	u32 mss = tcp_sk(conn->sk)->mss_cache;

	return bytes < conn->tx.cur.left && bytes >= mss ? bytes - bytes % mss : bytes;
}

static int tqp_send_piece(struct tqp_conn *conn, bool more)
{
	struct bio_vec bvecs[TQP_SEND_BVECS];
	struct tqp_tx_cur *cur = &conn->tx.cur;
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct kvec kv = { (void *)cur->data + cur->sge_off, cur->left };	/* if it has data */
	u32 bytes = cur->left, n;

	if (cur->data) {
		iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, &kv, 1, bytes);
	} else if (cur->nr_bvecs) {
		iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, conn->tx.pages, cur->nr_bvecs,
			      cur->sge_off + bytes);
		iov_iter_advance(&msg.msg_iter, cur->sge_off);
	} else {
		n = tqp_next_bvecs(conn, bvecs, &bytes);
		if (WARN_ON_ONCE(!n || !bytes))
			return -EFAULT;
		bytes = tqp_whole_segments(conn, bytes);
		iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, bvecs, n, bytes);
	}
	if (!cur->data) {
		msg.msg_flags |= MSG_ZEROCOPY;
		msg.msg_ubuf = &cur->msg->ubuf;
		msg.sg_from_iter = tqp_fill_skb;
	}
	/* never both: TCP would hold back what a message has beyond full segments, as a burst */
	if (bytes < cur->left || (conn->tx.train.open && more))
		msg.msg_flags |= MSG_MORE;
	else if (!conn->tx.train.open)
		msg.msg_flags |= MSG_EOR;
	return tcp_sendmsg_locked(conn->sk, &msg, bytes);
}

void tqp_tx_account(struct tqp_conn *conn, u32 bytes, bool copied)
{
	conn->counters.tx_bytes += bytes;
	if (copied)
		conn->counters.tx_copied_bytes += bytes;
	else
		conn->counters.tx_zerocopy_bytes += bytes;
	tqp_count(conn->dev, TQP_C_tx_bytes, bytes);
	tqp_count(conn->dev, copied ? TQP_C_tx_copied_bytes : TQP_C_tx_zerocopy_bytes, bytes);
}

int tqp_tx_push(struct tqp_conn *conn, bool more)
{
	struct tqp_tx_cur *cur = &conn->tx.cur;
	int rc = tqp_train_push(conn);

	while (!rc && cur->left) {
		rc = tqp_send_piece(conn, more);
		if (rc < 0)
			return rc;
		/* a nested run can only have failed the conn, never moved the place */
		tqp_cur_advance(cur, rc);
		tqp_tx_account(conn, rc, cur->data);
		conn->tx.turn -= rc;
		rc = conn->tx.turn > 0 || !cur->left ? 0 : -EBUSY;
	}
	return rc;
}

bool tqp_tx_alone(struct tqp_conn *conn)
{
	u32 end = tcp_sk(conn->sk)->write_seq;

	if (!tqp_tx_begun(conn))
		conn->tx.first_seq = end;
	if (likely(end == tqp_tx_end_seq(conn)))
		return true;
	tqp_conn_fail(conn, TCP_QP_REASON_SOCKET_IN_USE);
	return false;
}

bool tqp_tx_ready(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;

	if (conn->state == TQP_CONN_HANDSHAKE && READ_ONCE(conn->handshake.rtr_seen))
		WRITE_ONCE(conn->state, TQP_CONN_ACTIVE);
	return conn->state == TQP_CONN_ACTIVE && conn->qp && !sock_flag(sk, SOCK_DEAD) &&
	       (1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT);
}

/*
 * Responses first: the peer waits for them, and they are bounded.  Also behind a WQE that was
 * refused, whose completion may wait for a READ that the peer answers when it has ours.
 */
static bool tqp_tx_next(struct tqp_conn *conn)
{
	if (!tqp_log_room(conn)) {
		tqp_tx_wait(&conn->tx, TQP_TX_WAIT_LOG);
		return false;
	}
	tqp_tx_wait_over(&conn->tx, TQP_TX_WAIT_LOG);
	return tqp_response_next(conn) ||
	       (!conn->tx.failed && tqp_qp_may_send(conn->qp) && tqp_batch_next(conn));
}

/* Something to push: what TCP has not taken yet, or the next. */
static bool tqp_tx_load(struct tqp_conn *conn)
{
	return conn->tx.cur.active || tqp_train_waits(conn) || tqp_tx_next(conn);
}

void tqp_tx_count(struct tqp_conn *conn, u32 messages)
{
	conn->counters.tx_messages += messages;
	tqp_count(conn->dev, TQP_C_tx_messages, messages);
}

/* What was loaded, into TCP.  False: not all of it, or the turn is over. */
static __always_inline bool tqp_tx_give(struct tqp_conn *conn)
{
	int rc = tqp_tx_push(conn, conn->tx.cur.active && tqp_tx_more(conn));

	if (rc == -EAGAIN) {
		tqp_tx_wait(&conn->tx, TQP_TX_WAIT_SPACE);
		if (!tcp_sk(conn->sk)->packets_out)	/* no memory, and no ACK is due */
			tqp_tx_wait_memory(conn);
	} else if (rc < 0 && rc != -EBUSY) {
		tqp_conn_fail(conn, TCP_QP_REASON_PEER_CLOSED);
	}
	if (rc)
		return false;
	if (conn->tx.cur.active)
		tqp_tx_taken(conn);
	conn->tx.turn -= TQP_TX_WQE_BYTES;
	return conn->tx.turn > 0;
}

/* What may go now, or as much of it as is left of the turn. */
static void tqp_tx_feed(struct tqp_conn *conn)
{
	while (tqp_tx_ready(conn) && tqp_tx_load(conn) && tqp_tx_give(conn))
		;
}

/*
 * In turns: TCP takes ACKs in while we feed it, and another process may post
 * ahead of us for ever.
 */
void tqp_tx_run(struct tqp_conn *conn)
{
	bool more;

	sock_owned_by_me(conn->sk);
	tqp_tx_finish_bad(conn);
	if (!tqp_tx_ready(conn) || conn->tx.running || !tqp_tx_alone(conn))
		return;
	conn->tx.running = true;	/* and we keep the lock */
	tqp_tx_wait_over(&conn->tx, TQP_TX_WAIT_SPACE);
	tqp_tx_timed_wait_over(conn, TQP_TX_WAIT_MEMORY);
	conn->tx.turn = TQP_TX_TURN_BYTES;
	tqp_mss_update(conn);
	tqp_watch_begin(conn);
	do {
		tqp_tx_feed(conn);
		more = tqp_watch_end(conn);
	} while (more && conn->tx.turn > 0);
	conn->tx.running = false;
	if (conn->tx.turn <= 0 && tqp_tx_ready(conn))
		tqp_tx_kick(conn);
}

/* ---- responses, where one cannot sleep ---- */

/* Nothing is half sent; that tx.work finishes. */
static bool tqp_tx_may_answer(struct tqp_conn *conn)
{
	return !conn->tx.cur.active && !tqp_train_waits(conn) && tqp_tx_ready(conn) &&
	       tqp_tx_alone(conn);
}

/*
 * The spinlock is held, so TCP must neither sleep for memory nor work off a backlog: there is
 * none, as tqp_tx_answer()'s callers say.  A task that was interrupted may be in the middle of
 * its own page fragment, so we use the socket's.
 */
static void tqp_tx_answers(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;
	gfp_t allocation = sk->sk_allocation;
	bool task_frag = sk->sk_use_task_frag;

	sk->sk_allocation = GFP_NOWAIT | __GFP_NOWARN;	/* tx.work can wait, so no reserves */
	sk->sk_use_task_frag = false;
	conn->tx.running = true;
	conn->tx.turn = TQP_TX_ANSWER_BYTES;
	tqp_mss_update(conn);
	while (tqp_tx_ready(conn) && !tqp_msglog_full(&conn->tx.log) &&	/* it grows in tx.work */
	       tqp_response_next(conn) && tqp_tx_give(conn))
		;
	conn->tx.running = false;
	sk->sk_use_task_frag = task_frag;
	sk->sk_allocation = allocation;
}

/* Are some left that nothing but tx.work sends?  What waits for TCP or a record is kicked by an ACK. */
static bool tqp_tx_answers_left(struct tqp_conn *conn)
{
	return (tqp_response_waits(conn) || conn->tx.cur.active) && tqp_tx_ready(conn) &&
	       !tqp_tx_waits(&conn->tx, TQP_TX_WAIT_SPACE | TQP_TX_WAIT_LOG);
}

void tqp_tx_answer(struct tqp_conn *conn)
{
	sock_owned_by_me(conn->sk);
	if (!tqp_response_waits(conn) || conn->tx.running)	/* a run looks for them itself */
		return;
	if (tqp_tx_may_answer(conn))
		tqp_tx_answers(conn);
	if (tqp_tx_answers_left(conn))
		tqp_tx_kick(conn);
}
