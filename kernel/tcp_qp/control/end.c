// SPDX-License-Identifier: GPL-2.0
/* How a conn ends: what the peer is told, and what becomes of work in flight. */
#include "control/control.h"
#include "handshake/handshake.h"
#include "offload/offload.h"
#include "rx/rx.h"
#include "tx/tx.h"

/* ---- ours ---- */

static bool tqp_can_send(const struct tqp_conn *conn)
{
	const struct sock *sk = conn->sk;

	return conn->qp && READ_ONCE(conn->handshake.rtr_seen) && !conn->tx.running &&
	       (1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT) &&
	       !(sk->sk_shutdown & SEND_SHUTDOWN) && !sk->sk_err && !sock_flag(sk, SOCK_DEAD);
}

static void tqp_begin_terminate(struct tqp_conn *conn)
{
	struct tqp_tx_source source = {
		.rec = {
			.length = TCP_BTH_TERMINATE_BYTES,
			.opcode = TCP_BTH_OP_TERMINATE,
		},
		.data = conn->end.operands,
	};

	tcp_bth_put_terminate(conn->end.operands, &conn->end.nak);
	tqp_tx_begin(conn, &source);
	conn->end.terminate_begun = true;
}

/*
 * Behind what was begun, and behind the answers to what was asked for before the
 * fault.  -EAGAIN: TCP has no room for all of it yet; sk lock.
 */
static int tqp_send_terminate(struct tqp_conn *conn)
{
	int rc;

	conn->tx.turn = TQP_TX_TURN_BYTES;
	for (;;) {
		if (!tqp_can_send(conn) || !tqp_tx_alone(conn))
			return -EPIPE;
		conn->tx.running = true;
		rc = conn->tx.cur.active || tqp_train_waits(conn) ? tqp_tx_push(conn, false) : 0;
		conn->tx.running = false;
		if (rc)
			return rc == -EBUSY ? -EAGAIN : rc;
		if (conn->tx.cur.active)
			tqp_tx_taken(conn);
		if (conn->end.terminate_begun)
			return 0;
		if (!tqp_log_room(conn))
			return -ENOSPC;
		if (!tqp_response_next(conn))
			tqp_begin_terminate(conn);
	}
}

static bool tqp_all_acked(const struct tqp_conn *conn)
{
	return tqp_msglog_empty(&conn->tx.log) || conn->sk->sk_state == TCP_CLOSE;
}

/* ---- the work ---- */

/*
 * Ends that leave the connection as it is; after any other the peer must hear
 * of it.  When the application ends the connection manager's, that is by FIN.
 */
static bool tqp_orderly(const struct tqp_conn *conn)
{
	return conn->end.reason == TCP_QP_REASON_PEER_CLOSED ||
	       conn->end.reason == TCP_QP_REASON_NO_PEER_QP ||
	       (conn->owner && conn->end.reason == TCP_QP_REASON_NONE);
}

/* By number, the peer's end is no fault of ours: what it had not taken fails, if there is any. */
static bool tqp_peer_lost(const struct tqp_conn *conn)
{
	return tqp_conn_by_number(conn->owner) &&
	       (conn->end.reason == TCP_QP_REASON_PEER_CLOSED ||
		conn->end.reason == TCP_QP_REASON_NO_PEER_QP);
}

static int tqp_fail_event(const struct tqp_conn *conn, bool abort)
{
	if (conn->end.reason == TCP_QP_REASON_REMOTE_ACCESS)
		return IB_EVENT_QP_ACCESS_ERR;
	if (conn->end.reason == TCP_QP_REASON_PROTOCOL)
		return IB_EVENT_QP_REQ_ERR;
	return abort ? IB_EVENT_QP_FATAL : -1;
}

/* Was it begun, and not taken by the peer? */
static bool tqp_tx_msg_lost(const struct tqp_tx_msg *msg)
{
	return msg->unacked || msg->awaited;
}

/* Of what TCP had, if only in part, the oldest that the peer did not take; false: it took all. */
static bool tqp_blame_oldest(struct tqp_conn *conn)
{
	const struct tqp_ring *sq = conn->qp->sq;
	struct tqp_tx_msg *msg;
	u32 i = sq->index;

	/* they are done in order, and with their lead: the first ones may have been taken */
	while (i != conn->tx.sq_next && !tqp_tx_msg_lost(&conn->tx.msgs[i]))
		i = (i + 1) & sq->mask;
	msg = &conn->tx.msgs[i];
	if (!tqp_tx_msg_lost(msg))
		return false;
	conn->end.failed_msg = msg;
	conn->end.failed_status = IB_WC_RETRY_EXC_ERR;
	return true;
}

/* TCP tried for long enough: IBTA says of the oldest request that its retries are exceeded. */
static void tqp_unreachable(struct tqp_conn *conn)
{
	if (conn->end.failed_msg || !conn->end.sk_err || conn->end.sk_err == ECONNRESET ||
	    conn->end.sk_err == EPIPE || conn->end.sk_err == ECONNABORTED)
		return;
	tqp_blame_oldest(conn);
}

/*
 * The peer was lost, and the QP needs not know: nothing that was posted failed by that, and
 * no receive of an SRQ was taken.  Where it never began, another connection may yet come.
 */
static bool tqp_end_quiet(struct tqp_conn *conn)
{
	const struct tqp_qp *qp = conn->qp;

	if (!tqp_peer_lost(conn) || READ_ONCE(qp->state) == IB_QPS_ERR)
		return false;
	if (tqp_conn_never_began(conn))
		return true;
	return !tqp_blame_oldest(conn) && !tqp_ring_posted(qp->sq, conn->tx.sq_next) &&
	       !(qp->srq && conn->rx.wqe.valid);
}

void tqp_conn_fail_late(struct timer_list *timer)
{
	struct tqp_conn *conn = container_of(timer, struct tqp_conn, end.late);

	tqp_end_wake(conn);
	tqp_conn_put(conn);
}

/* How long may the step still take?  Jiffies. */
static long tqp_end_left(const struct tqp_conn *conn)
{
	return max((long)(conn->end.by - jiffies), 0L);
}

static void tqp_end_go(struct tqp_conn *conn, enum tqp_end_step step, u32 ms)
{
	conn->end.step = step;
	conn->end.by = jiffies + msecs_to_jiffies(ms);
}

/* Each step: jiffies until it should be looked at again, or 0 if it is over; sk lock. */

static long tqp_end_begin(struct tqp_conn *conn)
{
	conn->end.abort = tqp_tx_outstanding(conn) || !tqp_orderly(conn);
	if (!tqp_peer_lost(conn))
		tqp_qp_error(conn->qp, tqp_fail_event(conn, conn->end.abort));
	tqp_end_go(conn, conn->end.nak.syndrome ? TQP_END_TERMINATE : TQP_END_CUT, TQP_TERMINATE_MS);
	return 0;
}

static long tqp_end_terminate(struct tqp_conn *conn)
{
	int rc = tqp_send_terminate(conn);

	if (rc == -EAGAIN && tqp_end_left(conn))
		return msecs_to_jiffies(TQP_TERMINATE_LOOK_MS);
	tqp_end_go(conn, rc ? TQP_END_CUT : TQP_END_HEARD, TQP_TERMINATE_MS);
	return 0;
}

static long tqp_end_heard(struct tqp_conn *conn)
{
	long left = tqp_all_acked(conn) ? 0 : tqp_end_left(conn);

	if (!left)
		conn->end.step = TQP_END_CUT;
	return left;
}

/*
 * TCP does not look at a RST's acknowledgement.  What was received is acknowledged ahead of it,
 * and nothing else: the peer would think that it was lost.
 */
static void tqp_end_acknowledge(struct tqp_conn *conn)
{
	const struct tcp_sock *tp = tcp_sk(conn->sk);

	sock_owned_by_me(conn->sk);
	if (!conn->end.ack_held && conn->rx.told_ack != tp->rcv_nxt) {
		tqp_hold_acks(conn, tp->copied_seq);
		tqp_send_ack(conn);
	}
}

void tqp_end_abort(struct tqp_conn *conn)
{
	lock_sock(conn->sk);
	tqp_end_acknowledge(conn);
	release_sock(conn->sk);
	tcp_abort(conn->sk, ECONNABORTED);
}

static long tqp_end_cut(struct tqp_conn *conn)
{
	if (conn->end.abort)
		tqp_end_acknowledge(conn);
	conn->end.step = TQP_END_ABORT;
	return 0;
}

static long tqp_end_drop(struct tqp_conn *conn)
{
	tqp_tx_die(conn);	/* before the drop: unacknowledged sends did not succeed */
	if (conn->end.abort)
		tqp_tx_drop(conn);
	WRITE_ONCE(conn->end.told, true);
	wake_up_all(&conn->wait);
	tqp_end_go(conn, TQP_END_OFFLOAD, TQP_DRIVER_MS);
	return 0;
}

static bool tqp_end_is_unlocked(const struct tqp_conn *conn)
{
	return conn->end.step == TQP_END_ABORT || conn->end.step == TQP_END_OFFLOAD;
}

/* TCP takes the lock for itself, and a NIC may take its time. */
static void tqp_end_unlocked(struct tqp_conn *conn)
{
	if (conn->end.step == TQP_END_ABORT) {
		if (conn->end.abort)
			tcp_abort(conn->sk, ECONNABORTED);
		conn->end.step = TQP_END_DROP;
	} else {
		tqp_conn_offload_leave(conn);
		conn->end.step = TQP_END_DRIVERS;
	}
}

static void tqp_end_flush(struct tqp_conn *conn)
{
	bool lost = tqp_peer_lost(conn);

	if (lost)
		tqp_qp_error(conn->qp, -1);	/* IBTA: the completion is all that is told */
	else
		tqp_unreachable(conn);
	tqp_tx_complete_sent(conn);
	tqp_rx_flush(conn);
	if (lost && !conn->end.failed_msg)	/* the oldest is one that TCP never had */
		tqp_qp_flush_unreachable(conn->qp);
	else
		tqp_qp_flush(conn->qp);
	if (conn->qp->srq)
		tqp_qp_raise(conn->qp, IB_EVENT_QP_LAST_WQE_REACHED);
}

/*
 * Flush only when TCP and drivers can't send from the application's buffers any
 * more, nor the switch write to them.
 */
static long tqp_end_drivers(struct tqp_conn *conn)
{
	long left = tqp_tx_released(conn) ? 0 : tqp_end_left(conn);

	tqp_shadow_end(conn);
	if (left)
		return left;
	if (!tqp_tx_released(conn))
		tqp_tx_release_timeout(conn);
	tqp_end_go(conn, TQP_END_RETRIES,
		   min_t(u64, tqp_qp_retries_ms(conn->qp), TQP_RETRIES_MAX_MS));
	return 0;
}

/*
 * A requester without a peer repeats itself for a while, and a program may have all that it
 * needs by then: acknowledgements that the peer's TCP owes its other QPs come when they end.
 */
static long tqp_end_retries(struct tqp_conn *conn)
{
	bool quiet = tqp_end_quiet(conn);
	long left = tqp_end_left(conn);

	if (!quiet && left && tqp_peer_lost(conn) && tqp_qp_state(conn->qp) != IB_QPS_ERR)
		return left;
	conn->end.step = TQP_END_OVER;
	if (quiet)
		tqp_tx_complete_sent(conn);	/* with success */
	else
		tqp_end_flush(conn);
	tqp_conn_ended(conn);	/* under the lock: who posts from here on flushes */
	return 0;
}

static long tqp_end_step(struct tqp_conn *conn)
{
	switch (conn->end.step) {
	case TQP_END_BEGIN:
		return tqp_end_begin(conn);
	case TQP_END_TERMINATE:
		return tqp_end_terminate(conn);
	case TQP_END_HEARD:
		return tqp_end_heard(conn);
	case TQP_END_CUT:
		return tqp_end_cut(conn);
	case TQP_END_DROP:
		return tqp_end_drop(conn);
	case TQP_END_DRIVERS:
		return tqp_end_drivers(conn);
	case TQP_END_RETRIES:
		return tqp_end_retries(conn);
	case TQP_END_ABORT:
	case TQP_END_OFFLOAD:
	case TQP_END_OVER:
		break;
	}
	return 0;
}

/* Come back after @left jiffies, or when woken; sk lock, so that a detach cancels it. */
static void tqp_end_later(struct tqp_conn *conn, long left)
{
	tqp_conn_get(conn);
	if (mod_timer(&conn->end.late, jiffies + left))	/* which has a reference already */
		tqp_conn_put(conn);
}

/* As many steps as can be taken now.  False: the next one is taken without the lock. */
static bool tqp_end_run(struct tqp_conn *conn)
{
	long left = 0;

	WRITE_ONCE(conn->end.waits, true);
	smp_mb();	/* pairs with tqp_tx_msg_done(): it sees us wait, or we see it done */
	/* after a detach there is nobody to flush for, and who detached did the rest */
	while (conn->qp && conn->end.step != TQP_END_OVER && !left) {
		if (tqp_end_is_unlocked(conn))
			return false;
		left = tqp_end_step(conn);
	}
	if (left)
		tqp_end_later(conn, left);
	else
		WRITE_ONCE(conn->end.waits, false);
	return true;
}

void tqp_conn_fail_work(struct work_struct *work)
{
	struct tqp_conn *conn = container_of(work, struct tqp_conn, end.work);
	bool done = false;

	while (!done && tqp_lock_or_defer(conn, TQP_DEFERRED_END)) {
		done = tqp_end_run(conn);
		release_sock(conn->sk);
		if (!done)
			tqp_end_unlocked(conn);
	}
	tqp_conn_put(conn);
}
