// SPDX-License-Identifier: GPL-2.0
/*
 * Trains: SENDs, or WRITEs, of one length, one behind the other, share segments.
 *
 * Two and more of a kind are gathered from the send queue, and TCP gets them by
 * one call, without being told where each of them ends.  Small ones, whether
 * inline or not, are copied together, here: for so few bytes anything else costs
 * more.  Longer ones are sent from where they lie, by train_pages.c.  A SEND alone
 * that is inline may begin or go on a train, too.  A train's WRITEs have one key,
 * and targets equally far apart.
 */
#include "memory/memory.h"
#include "tx/train.h"

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

static void tqp_train_begin(struct tqp_conn *conn, bool open, const struct tqp_msg_rec *first)
{
	struct tqp_tx_train *train = &conn->tx.train;

	if (train->open || !conn->counters.tx_messages)	/* plain bytes before the first */
		tqp_train_seal(conn);
	train->open = open;
	train->like = *first;
	train->messages = 0;
}

void tqp_train_join(struct tqp_conn *conn, struct tqp_msg_rec *rec, bool copied)
{
	struct tqp_tx_train *train = &conn->tx.train;
	bool fits = copied && rec->opcode == TCP_BTH_OP_SEND_ONLY && rec->length &&
		    tqp_train_may(conn);

	if (!fits || !train->open || train->like.opcode != rec->opcode || train->like.length != rec->length ||
	    train->like.flags != rec->flags || train->messages == TCP_BTH_TRAIN_MAX_MESSAGES)
		tqp_train_begin(conn, fits, rec);
	rec->train_place = train->messages++;
}

void tqp_train_start(struct tqp_conn *conn, bool open)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	struct tqp_msg_rec first = tqp_wqe_record(wqe, wqe->bytes);

	tqp_train_begin(conn, open, &first);
}

/* ---- gathering ---- */

/* How many of the send queue's WQEs, from the current one on, could go now? */
static u32 tqp_train_limit(const struct tqp_conn *conn)
{
	u32 limit = min(tqp_sq_ready(conn, conn->tx.sq_next),
			tqp_msglog_room(&conn->tx.log));
	s16 credit;

	if (!tqp_train_may(conn))
		return 0;
	if (!conn->tx.wqe.op->untagged)
		return READ_ONCE(conn->handshake.peer_write_trains) ? limit : 0;
	credit = READ_ONCE(conn->credit.peer_limit) - conn->tx.msn;
	return credit > 0 ? min_t(u32, limit, credit) : 0;
}

static inline bool tqp_train_copies(const struct tqp_wqe *wqe)
{
	return wqe->bytes <= TQP_TRAIN_COPY_MESSAGE_BYTES && wqe->nr_sge <= 1;
}

/* How many more may join it? */
static u32 tqp_train_room(const struct tqp_tx_train *train)
{
	return min_t(u32, TCP_BTH_TRAIN_MAX_MESSAGES - train->messages,
		     (TQP_TRAIN_COPY_BYTES - train->end) / train->like.length);
}

static bool tqp_train_copy(struct tqp_conn *conn)
{
	struct tqp_tx_train *train = &conn->tx.train;
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	u8 *to = train->bytes + train->end;

	if (wqe->nr_sge)
		return tqp_mr_copy_from(conn->dev, conn->qp->pd->pdn, wqe->sges, to);
	tqp_wqe_copy_inline(wqe, to);
	return true;
}

void tqp_train_log(struct tqp_conn *conn, struct tqp_tx_msg *msg, u32 at)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	struct tqp_tx_train *train = &conn->tx.train;
	u32 slot = conn->tx.log.tail & conn->tx.log.mask;
	struct tqp_msg_rec *rec = &conn->tx.log.rec[slot];

	*rec = train->like;
	rec->start_seq = tcp_sk(conn->sk)->write_seq + at;
	rec->msn = wqe->op->untagged ? conn->tx.msn++ : conn->tx.write_msn++;
	rec->flags |= TCP_BTH_F_MORE;
	rec->train_place = train->messages;
	if (wqe->op->operands)
		rec->va = wqe->remote_addr;
	if (train->messages++ == 1)
		tqp_train_step(wqe->remote_addr - train->va, train->like.length, &train->step);
	train->va = wqe->remote_addr;
	conn->tx.log_msg[slot] = msg;
	tqp_msglog_commit(&conn->tx.log);
}

/* The current WQE joins the train.  False: it cannot. */
static bool tqp_train_add(struct tqp_conn *conn)
{
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);

	if (!conn->tx.train.open || !tqp_train_fits(&conn->tx.train, &conn->tx.wqe) ||
	    !tqp_train_copy(conn))
		return false;
	tqp_tx_msg_init_copied(msg, conn);
	tqp_wqe_set_completion(conn, msg, true);
	tqp_train_log(conn, msg, conn->tx.train.end);
	if (msg->nic)
		tqp_sends_post(conn, msg, tqp_msglog_newest(&conn->tx.log));
	conn->tx.train.end += conn->tx.train.like.length;
	tqp_wqe_advance(conn);
	return true;
}

/* The current WQE and those behind it, as long as they fit; how many. */
static u32 tqp_train_fill(struct tqp_conn *conn, u32 limit)
{
	u32 n = 0;

	while (tqp_train_add(conn) && ++n < limit) {
		tqp_wqe_copy(conn);
		if (!tqp_train_takes(conn) || !tqp_train_copies(&conn->tx.wqe))
			break;
	}
	return n;
}

/* Can the current WQE join the train before it, or begin one with the next? */
static bool tqp_train_found(struct tqp_conn *conn, u32 limit)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;

	if (conn->tx.train.open && tqp_train_fits(&conn->tx.train, wqe) &&
	    tqp_train_room(&conn->tx.train))
		return true;
	if (limit < 2 || !tqp_wqe_alike(conn))
		return false;
	tqp_train_start(conn, true);
	return true;
}

bool tqp_train_has_buffer(struct tqp_tx_train *train)
{
	if (!train->bytes)
		train->bytes = kmalloc(TQP_TRAIN_COPY_BYTES, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return train->bytes;		/* else one by one */
}

static u32 tqp_train_copied(struct tqp_conn *conn, u32 limit)
{
	if (!tqp_train_found(conn, limit) || !tqp_train_has_buffer(&conn->tx.train))
		return 0;
	return tqp_train_fill(conn, min(limit, tqp_train_room(&conn->tx.train)));
}

bool tqp_train_gather(struct tqp_conn *conn)
{
	const struct tqp_op *op = conn->tx.wqe.op;
	u32 limit, n;

	if (!tqp_train_takes(conn))
		return false;
	limit = tqp_train_limit(conn);
	if (!limit)
		return false;
	/* a message alone is not to pay for what that has on its stack */
	n = limit < TQP_MIXED_MIN_MESSAGES ? 0 : tqp_train_mixed(conn, limit);
	if (!n)
		n = tqp_train_copies(&conn->tx.wqe) ? tqp_train_copied(conn, limit) :
						      tqp_train_pages(conn, limit);
	if (!n)
		return false;
	tqp_tx_timed_wait_over(conn, TQP_TX_WAIT_CREDIT);
	if (op->untagged)		/* they had credit */
		conn->credit.probe_delay_ms = TQP_PROBE_FIRST_MS;
	if (!tqp_wqe_follows(conn, conn->tx.sq_next))
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
	/* a mixed train's table: its messages follow by another call, and in other segments */
	if (conn->tx.cur.active || tqp_msglog_newest(&conn->tx.log)->flags & TCP_BTH_F_MORE)
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
	if (conn->tx.cur.active)
		tqp_train_seal(conn);
	return 0;
}
