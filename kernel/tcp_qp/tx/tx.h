/* SPDX-License-Identifier: GPL-2.0 */
/* The send queue and the peer's requests, to TCP. */
#ifndef TQP_TX_H
#define TQP_TX_H

#include "conn/conn.h"

/* ---- tx.c ---- */
void tqp_tx_run(struct tqp_conn *conn);		/* process context, sk lock */
void tqp_tx_kick(struct tqp_conn *conn);	/* any context: run it soon */
/*
 * The responses that wait, at once: tx.work is a task, and waits for its turn where others spin
 * on the processor, as ranks of MPI do.  The socket's spinlock is held and its backlog is empty:
 * in softirq, where nobody owns the socket, or in release_cb.
 */
void tqp_tx_answer(struct tqp_conn *conn);
void tqp_tx_wait_memory(struct tqp_conn *conn);	/* run it later */
/* Waits for credit and for memory have one timer: stop it, the next wait has its time; sk lock. */
void tqp_tx_forget_time(struct tqp_conn *conn);
static inline void tqp_tx_timed_wait_over(struct tqp_conn *conn, u32 what)
{
	if (unlikely(conn->tx.waits & what)) {
		tqp_tx_wait_over(&conn->tx, what);
		tqp_tx_forget_time(conn);
	}
}

/*
 * False: the conn failed, for somebody else wrote to the stream since our first
 * message.  That can be a send() alone which was waiting for the lock when
 * attach had it; before our first message its bytes are plain TCP.
 */
bool tqp_tx_alone(struct tqp_conn *conn);
bool tqp_tx_ready(struct tqp_conn *conn);	/* may anything of ours go to TCP?  sk lock */
/* 0 when the current message is all in TCP, else -EAGAIN, -EBUSY (turn over) or TCP's error. */
int tqp_tx_push(struct tqp_conn *conn, bool more);
/* What a message is made of; sges[] and data[] stay until TCP has it all. */
struct tqp_tx_source {
	struct tqp_tx_msg *msg;		/* NULL: nobody waits for its end */
	struct tqp_msg_rec rec;		/* all but its place in the stream */
	const struct ib_sge *sges;	/* in msg->mrs[]; not used if there is data */
	u8 nr_sge;
	const u8 *data;			/* bytes that TCP copies; else NULL */
	bool ends_wqe;			/* after it the SQ goes on */
};

/* It is the current message from here on.  There is room in the log. */
void tqp_tx_begin(struct tqp_conn *conn, const struct tqp_tx_source *source);
/* TCP has all of the current message. */
void tqp_tx_taken(struct tqp_conn *conn);

void tqp_tx_account(struct tqp_conn *conn, u32 bytes, bool copied);
/* So many messages were handed over. */
void tqp_tx_count(struct tqp_conn *conn, u32 messages);

/* ---- watch.c; sk lock ---- */
static inline bool tqp_watch_is_on(const struct tqp_conn *conn)
{
	return conn->tx.watch && conn->tx.watch->on;
}

/* There was a doorbell. */
static inline void tqp_watch_renew(struct tqp_conn *conn)
{
	if (conn->tx.watch)
		conn->tx.watch->renewed = 0;
}

void tqp_watch_begin(struct tqp_conn *conn);	/* the send queue is about to be looked at */
/* It was, and nothing of it may go now.  True: something was posted meanwhile that nobody rings for. */
bool tqp_watch_end(struct tqp_conn *conn);
/* No kick comes of it any more; the conn is DEAD, and its lock not held. */
void tqp_watch_cancel(struct tqp_conn *conn);

/* ---- mss.c ---- */
void tqp_mss_update(struct tqp_conn *conn);	/* sk lock */

/* ---- train_mixed.c ---- */
void tqp_tx_copies_put(struct tqp_tx_msg *lead);	/* the pages it had; any context */

/* ---- train.c; sk lock ---- */
/* Say where @rec's message, of bytes that TCP copies or not, stands in a train: last, first or alone. */
void tqp_train_join(struct tqp_conn *conn, struct tqp_msg_rec *rec, bool copied);
/* The current WQE and those behind it that share its segments; false: it goes alone. */
bool tqp_train_gather(struct tqp_conn *conn);
/* 0 when TCP has all of it, else as tqp_tx_push(). */
int tqp_train_push(struct tqp_conn *conn);
static inline bool tqp_train_waits(const struct tqp_conn *conn)
{
	return conn->tx.train.at != conn->tx.train.end;
}

/* ---- batch.c; sk lock ---- */
/* What is next in the send queue becomes a train or the current message; false: nothing, or it must wait. */
bool tqp_batch_next(struct tqp_conn *conn);
bool tqp_tx_has_credit(const struct tqp_conn *conn);

/* ---- txdone.c ---- */
void tqp_tx_msg_init(struct tqp_tx_msg *msg, struct tqp_conn *conn);
void tqp_tx_msg_init_copied(struct tqp_tx_msg *msg, struct tqp_conn *conn);	/* one message, TCP copies it */
void tqp_tx_msg_init_behind(struct tqp_tx_msg *msg, struct tqp_tx_msg *lead);	/* done with @lead */
void tqp_tx_msg_put(struct tqp_tx_msg *msg);
void tqp_tx_msg_undo(struct tqp_tx_msg *msg);		/* it has no place in the stream and gets none */
void tqp_clean_acked(struct sock *sk, u32 acked_seq);
bool tqp_tx_outstanding(const struct tqp_conn *conn);	/* sk lock */
void tqp_tx_finish_bad(struct tqp_conn *conn);		/* sk lock */
void tqp_tx_drop(struct tqp_conn *conn);		/* sk lock */
/* After tqp_tx_drop(): have drivers let go, too? */
static inline bool tqp_tx_released(struct tqp_conn *conn)
{
	return !atomic_read(&conn->tx.live);
}

/* They have not, in all the time there was. */
void tqp_tx_release_timeout(struct tqp_conn *conn);
/* After both: completions of what TCP had; sk lock */
void tqp_tx_complete_sent(struct tqp_conn *conn);

/* ---- requester.c: READs and atomics of ours ---- */
/* May one more be asked for, and is there room for it? */
bool tqp_read_room(struct tqp_conn *conn);
/* The current WQE's next request becomes the current message: all of an atomic, or an SGE of a READ. */
void tqp_request_begin(struct tqp_conn *conn);
/* Is the response that begins one we wait for? */
bool tqp_read_expected(const struct tqp_conn *conn);
enum ib_wc_status tqp_read_copy(struct tqp_conn *conn, struct sk_buff *skb, u32 skb_off, u32 bytes);
enum ib_wc_status tqp_atomic_result(struct tqp_conn *conn);
void tqp_read_done(struct tqp_conn *conn);
void tqp_read_drop(struct tqp_conn *conn);		/* no response will come any more */
/* The READ that waits under @msn failed here. */
void tqp_read_fail(struct tqp_conn *conn, enum ib_wc_status status);

/* ---- responder.c: READs, atomics and WRITEs of the peer's ---- */
bool tqp_response_room(struct tqp_conn *conn);
/* 0, or the syndrome to refuse the current request with. */
int tqp_request(struct tqp_conn *conn);
/* May the peer WRITE there? */
bool tqp_may_write(const struct tqp_conn *conn, u32 rkey, u64 va, u64 bytes);
/* 0, or the syndrome to refuse the current WRITE with. */
int tqp_write_check(struct tqp_conn *conn);
/* Make a response the current message, if one is due. */
bool tqp_response_next(struct tqp_conn *conn);
static inline bool tqp_response_waits(const struct tqp_conn *conn)
{
	return conn->responder.head != conn->responder.tail;
}

void tqp_response_done(struct tqp_tx_msg *msg);		/* any context */
/* Is a response still to be sent or acknowledged whose request named @key? */
bool tqp_response_uses(const struct tqp_conn *conn, u32 key);
/*
 * Is one still to be sent or acknowledged that reads @mr, or if that is NULL, through the window
 * of this index?  sk lock.
 */
bool tqp_response_holds(const struct tqp_conn *conn, const struct tqp_mr *mr, u32 window);

#endif
