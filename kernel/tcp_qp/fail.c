// SPDX-License-Identifier: GPL-2.0
/*
 * How a conn ends: why, what the peer is told, and what becomes of work in flight.
 *
 * A fault in what we receive is answered by TERMINATE, the stream's last
 * message.  The faulty message's end is not acknowledged to TCP any more, so
 * its sender still has the work request and completes it with the error.
 */
#include "conn.h"
#include "trace.h"

void tqp_conn_fail(struct tqp_conn *conn, enum tcp_qp_reason reason)
{
	if (conn->state == TQP_CONN_DEAD)
		return;
	WRITE_ONCE(conn->state, TQP_CONN_DEAD);
	conn->fail_reason = reason;
	conn->reason = reason;
	tqp_count(conn->dev, TQP_C_qp_errors, 1);
	trace_tqp_conn_fail(conn->qpn, reason);
	tqp_conn_get(conn);
	if (!queue_work(tqp_wq, &conn->fail_work))
		tqp_conn_put(conn);
	wake_up_all(&conn->wait);
}

/* From here on the peer's sequence numbers are not acknowledged, unless they were already. */
static void tqp_hold_acks(struct tqp_conn *conn, u32 seq)
{
	u32 sent = tcp_sk(conn->sk)->rcv_wup;

	conn->ack_limit = before(seq, sent) ? sent : seq;
	conn->ack_held = true;
}

void tqp_conn_nak(struct tqp_conn *conn, enum tcp_qp_reason reason, enum tcp_bth_syndrome syndrome)
{
	const struct tqp_rx_msg *msg = &conn->rx.msg;

	if (conn->state == TQP_CONN_DEAD)
		return;
	conn->nak = (struct tcp_bth_terminate) {
		.start_seq = msg->active ? msg->start_seq : tcp_sk(conn->sk)->copied_seq,
		.syndrome = syndrome,
		.opcode = msg->opcode,
		.msn = msg->msn,
	};
	tqp_hold_acks(conn, conn->nak.start_seq);
	tqp_count(conn->dev, TQP_C_naks_sent, 1);
	tqp_conn_fail(conn, reason);
}

/* ---- the peer's TERMINATE ---- */

static enum ib_wc_status tqp_nak_status(u8 syndrome)
{
	switch (syndrome) {
	case TCP_BTH_NAK_REMOTE_ACCESS:
		return IB_WC_REM_ACCESS_ERR;
	case TCP_BTH_NAK_REMOTE_OPERATIONAL:
		return IB_WC_REM_OP_ERR;
	default:
		return IB_WC_REM_INV_REQ_ERR;
	}
}

void tqp_terminated(struct tqp_conn *conn, const u8 *operands)
{
	const struct tqp_msg_rec *rec;
	struct tcp_bth_terminate nak;

	tcp_bth_get_terminate(operands, &nak);
	tqp_count(conn->dev, TQP_C_naks_received, 1);
	rec = tqp_msglog_find(&conn->log, nak.start_seq);
	if (rec && rec->start_seq == nak.start_seq) {
		conn->error_msg = conn->log_msg[rec - conn->log.rec];
		conn->error_status = tqp_nak_status(nak.syndrome);
	}
	tqp_conn_fail(conn, TCP_QP_REASON_REMOTE_ERROR);
}

/* ---- ours ---- */

static bool tqp_can_send(const struct sock *sk)
{
	return (1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT) &&
	       !(sk->sk_shutdown & SEND_SHUTDOWN) && !sk->sk_err && !sock_flag(sk, SOCK_DEAD);
}

/* Hand the current message to TCP; its send buffer may be full, so this may wait. */
static int tqp_push_all(struct tqp_conn *conn, long *timeout)
{
	struct sock *sk = conn->sk;
	int rc;

	while (tqp_can_send(sk) && tqp_tx_alone(conn)) {
		conn->tx_running = true;
		rc = tqp_tx_push(conn, false);
		conn->tx_running = false;
		if (rc != -EAGAIN)
			return rc;
		if (!*timeout)
			return -ETIMEDOUT;
		WRITE_ONCE(conn->tx_wait_space, true);
		release_sock(sk);
		*timeout = wait_event_timeout(conn->wait, !READ_ONCE(conn->tx_wait_space),
					      *timeout);
		lock_sock(sk);
	}
	return -EPIPE;
}

/* What was asked for before the fault is answered before it. */
static int tqp_send_responses(struct tqp_conn *conn, long *timeout)
{
	struct tqp_tx_cur *cur = &conn->cur;
	int rc;

	while (tqp_log_room(conn) && tqp_response_next(conn)) {
		rc = tqp_push_all(conn, timeout);
		if (rc)
			return rc;
		cur->active = false;
		tqp_tx_msg_put(cur->msg);
	}
	return 0;
}

static int tqp_send_terminate(struct tqp_conn *conn, long *timeout)
{
	struct tqp_tx_cur *cur = &conn->cur;
	struct tqp_msg_rec rec = {
		.length = TCP_BTH_TERMINATE_BYTES,
		.opcode = TCP_BTH_OP_TERMINATE,
	};
	int rc = tqp_tx_alone(conn) ? 0 : -EPIPE;

	if (!rc && (cur->active || tqp_train_waits(conn)))
		rc = tqp_push_all(conn, timeout);
	if (rc)
		return rc;
	if (cur->active) {
		cur->active = false;
		if (cur->ends_wqe)
			tqp_wqe_sent(conn);
		else if (cur->msg->is_response)
			tqp_tx_msg_put(cur->msg);
	}
	rc = tqp_send_responses(conn, timeout);
	if (rc)
		return rc;
	if (!tqp_log_room(conn))
		return -ENOSPC;
	tcp_bth_put_terminate(cur->operands, &conn->nak);
	cur->is_inline = true;
	cur->data = cur->operands;
	cur->left = TCP_BTH_TERMINATE_BYTES;
	cur->ends_wqe = false;
	tqp_tx_begin(conn, NULL, &rec);
	rc = tqp_push_all(conn, timeout);
	cur->active = false;
	return rc;
}

static bool tqp_all_acked(struct tqp_conn *conn)
{
	return tqp_msglog_empty(&conn->log) || conn->sk->sk_state == TCP_CLOSE;
}

/* Tell the peer, and give TCP some time for it. */
static void tqp_terminate(struct tqp_conn *conn)
{
	long timeout = msecs_to_jiffies(TQP_TERMINATE_MS);
	int rc = -EPIPE;

	lock_sock(conn->sk);
	if (conn->qp && READ_ONCE(conn->rtr_seen) && !conn->tx_running)
		rc = tqp_send_terminate(conn, &timeout);
	release_sock(conn->sk);
	if (!rc)
		wait_event_timeout(conn->wait, tqp_all_acked(conn),
				   msecs_to_jiffies(TQP_TERMINATE_MS));
}

/* ---- the work ---- */

void tqp_tx_die(struct tqp_conn *conn)
{
	unsigned long flags;

	spin_lock_irqsave(&conn->done_lock, flags);
	conn->tx_dead = true;
	spin_unlock_irqrestore(&conn->done_lock, flags);
}

/*
 * Ends that leave the connection as it is; after any other the peer must hear
 * of it.  When the application ends the connection manager's, that is by FIN.
 */
static bool tqp_orderly(const struct tqp_conn *conn)
{
	return conn->fail_reason == TCP_QP_REASON_PEER_CLOSED ||
	       conn->fail_reason == TCP_QP_REASON_NO_PEER_QP ||
	       (conn->ep && conn->fail_reason == TCP_QP_REASON_NONE);
}

static int tqp_fail_event(const struct tqp_conn *conn, bool abort)
{
	if (conn->fail_reason == TCP_QP_REASON_REMOTE_ACCESS)
		return IB_EVENT_QP_ACCESS_ERR;
	if (conn->fail_reason == TCP_QP_REASON_PROTOCOL)
		return IB_EVENT_QP_REQ_ERR;
	return abort ? IB_EVENT_QP_FATAL : -1;
}

/* TCP tried for long enough: IBTA says of the oldest request that its retries are exceeded. */
static void tqp_unreachable(struct tqp_conn *conn)
{
	struct tqp_ring *sq = conn->qp->sq;

	if (conn->error_msg || sq->index == conn->sq_next || !conn->sk_err ||
	    conn->sk_err == ECONNRESET || conn->sk_err == EPIPE || conn->sk_err == ECONNABORTED)
		return;
	conn->error_msg = &conn->tx[sq->index & sq->mask];
	conn->error_status = IB_WC_RETRY_EXC_ERR;
}

/*
 * Flush only when TCP and drivers can't send from the application's buffers any
 * more, nor the switch write to them.
 */
void tqp_conn_fail_work(struct work_struct *work)
{
	struct tqp_conn *conn = container_of(work, struct tqp_conn, fail_work);
	struct sock *sk = conn->sk;
	bool abort;

	lock_sock(sk);
	abort = tqp_tx_outstanding(conn) || !tqp_orderly(conn);
	if (conn->qp)
		tqp_qp_error(conn->qp, tqp_fail_event(conn, abort));
	release_sock(sk);
	if (conn->nak.syndrome)
		tqp_terminate(conn);
	if (abort)
		tcp_abort(sk, ECONNABORTED);

	lock_sock(sk);
	tqp_tx_die(conn);
	if (abort)
		tqp_tx_drop(conn);
	release_sock(sk);
	tqp_conn_offload_stop(conn);
	tqp_tx_wait_drivers(conn);

	lock_sock(sk);
	if (conn->qp) {
		tqp_unreachable(conn);
		tqp_tx_settle(conn);
		tqp_rx_flush(conn);
		tqp_qp_flush(conn->qp);
		if (conn->qp->srq)
			tqp_qp_raise(conn->qp, IB_EVENT_QP_LAST_WQE_REACHED);
	}
	tqp_conn_ended(conn);	/* under the lock: who posts from here on flushes */
	release_sock(sk);
	tqp_conn_put(conn);
}
