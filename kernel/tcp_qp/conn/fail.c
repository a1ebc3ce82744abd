// SPDX-License-Identifier: GPL-2.0
/*
 * Why a conn ends.  The rest is end.work's.
 *
 * A fault in what we receive is answered by TERMINATE, the stream's last
 * message.  The faulty message's end is not acknowledged to TCP any more, so
 * its sender still has the work request and completes it with the error.
 */
#include "conn/conn.h"
#include "object/trace.h"

void tqp_end_kick(struct tqp_conn *conn)
{
	tqp_conn_get(conn);
	if (!queue_work(tqp_end_wq, &conn->end.work))
		tqp_conn_put(conn);
}

void tqp_tx_die(struct tqp_conn *conn)
{
	unsigned long flags;

	spin_lock_irqsave(&conn->tx.done_lock, flags);
	conn->tx.dead = true;
	spin_unlock_irqrestore(&conn->tx.done_lock, flags);
}

void tqp_conn_fail(struct tqp_conn *conn, enum tcp_qp_reason reason)
{
	if (conn->state == TQP_CONN_DEAD)
		return;
	WRITE_ONCE(conn->state, TQP_CONN_DEAD);
	if (conn->qp)
		tqp_ring_sleep(conn->qp->sq);	/* before the flush looks: doorbells flush what comes later */
	conn->end.reason = reason;
	conn->reason = reason;
	tqp_count(conn->dev, TQP_C_qp_errors, 1);
	trace_tqp_conn_fail(conn->qpn, reason);
	tqp_end_kick(conn);
	wake_up_all(&conn->wait);
}

void tqp_hold_acks(struct tqp_conn *conn, u32 seq)
{
	u32 told = conn->rx.told_ack;

	conn->end.ack_limit = before(seq, told) ? told : seq;
	conn->end.ack_held = true;
}

void tqp_conn_nak(struct tqp_conn *conn, enum tcp_qp_reason reason, enum tcp_bth_syndrome syndrome)
{
	const struct tqp_rx_msg *msg = &conn->rx.msg;

	if (conn->state == TQP_CONN_DEAD)
		return;
	conn->end.nak = (struct tcp_bth_terminate) {
		.start_seq = msg->active ? msg->start_seq : tcp_sk(conn->sk)->copied_seq,
		.syndrome = syndrome,
		.opcode = msg->opcode,
		.msn = msg->msn,
	};
	tqp_hold_acks(conn, conn->end.nak.start_seq);
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
	rec = tqp_msglog_find(&conn->tx.log, nak.start_seq);
	if (rec && rec->start_seq == nak.start_seq) {
		conn->end.failed_msg = conn->tx.log_msg[rec - conn->tx.log.rec];
		conn->end.failed_status = tqp_nak_status(nak.syndrome);
	}
	tqp_conn_fail(conn, TCP_QP_REASON_REMOTE_ERROR);
}
