// SPDX-License-Identifier: GPL-2.0
/*
 * The send queue's next batch, of one or more WQEs that may go now: a train, or
 * one message, or, of a READ, the requests for its SGEs one after the other, so
 * that each response has one target.  Local operations are done on the way.
 */
#include "memory/memory.h"
#include "tx/wqe.h"
#include "wire/credit.h"

/* ---- may it go now? ---- */

bool tqp_tx_has_credit(const struct tqp_conn *conn)
{
	return tqp_credit_ahead(READ_ONCE(conn->credit.peer_limit), conn->tx.msn) > 0;
}

static bool tqp_tx_credit(struct tqp_conn *conn)
{
	if (tqp_tx_has_credit(conn)) {
		conn->credit.probe_delay_ms = TQP_PROBE_FIRST_MS;
		return true;
	}
	/* nothing tells us of receives posted after the handshake until we have sent something */
	if (conn->credit.probe_allowed || !conn->counters.tx_messages) {
		conn->credit.probe_allowed = false;
		return true;
	}
	/* ask to be kicked first, then look again: the limit is written without the lock */
	tqp_tx_wait(&conn->tx, TQP_TX_WAIT_CREDIT);
	smp_mb();	/* pairs with the order of tqp_peer_credits() */
	if (tqp_tx_has_credit(conn))
		return true;
	conn->counters.tx_credit_waits++;
	tqp_count(conn->dev, TQP_C_tx_credit_waits, 1);
	tqp_queue_delayed(conn, &conn->credit.probe_work, conn->credit.probe_delay_ms);
	return false;
}

static bool tqp_wqe_may_go(struct tqp_conn *conn)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;

	if (wqe->flags & IB_SEND_FENCE && !wqe->part && conn->requester.out) {
		tqp_tx_wait(&conn->tx, TQP_TX_WAIT_READ);
		return false;
	}
	if (wqe->op->local && wqe->op->invalidates) {
		tqp_tx_wait(&conn->tx, TQP_TX_WAIT_RESPONSE);
		smp_mb();	/* pairs with tqp_response_done(): it sees us wait, or we see it done */
		if (tqp_response_uses(conn, wqe->ex))
			return false;
		tqp_tx_wait_over(&conn->tx, TQP_TX_WAIT_RESPONSE);
	}
	if (wqe->op->request)
		return tqp_read_room(conn);
	return !wqe->op->untagged || tqp_tx_credit(conn);
}

/* ---- messages ---- */

static void tqp_begin_payload(struct tqp_conn *conn)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);
	struct tqp_tx_source source = {
		.msg = msg,
		.rec = tqp_wqe_record(wqe, wqe->bytes),
		.sges = wqe->sges,
		.nr_sge = wqe->nr_sge,
		.data = wqe->copy,
		.ends_wqe = true,
	};

	source.rec.msn = wqe->op->untagged ? conn->tx.msn++ : conn->tx.write_msn++;
	tqp_tx_begin(conn, &source);
}

/* The WQE that cannot be sent completes with @status; everything after it is flushed. */
static bool tqp_wqe_refuse(struct tqp_conn *conn, enum ib_wc_status status)
{
	tqp_count(conn->dev, status == IB_WC_LOC_PROT_ERR ? TQP_C_tx_protection_errors :
							     TQP_C_wqe_invalid, 1);
	conn->tx.bad_status = status;
	conn->tx.bad_wr_id = conn->tx.wqe.wr_id;
	WRITE_ONCE(conn->tx.failed, true);
	tqp_tx_finish_bad(conn);
	return false;
}

/* What was bound before is used by nobody any more; any context. */
static void tqp_bind_done(struct tqp_tx_msg *msg)
{
	WRITE_ONCE(msg->awaited, 0);
	tqp_tx_msg_put(msg);
}

/* Done when its turn comes; it completes in the SQ's order, like all others. */
static bool tqp_wqe_local(struct tqp_conn *conn)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);
	struct tqp_binding *old = NULL;
	enum ib_wc_status status;

	conn->tx.turn -= TQP_TX_WQE_BYTES;
	if (wqe->op->invalidates)
		status = tqp_mw_invalidate(conn, wqe->ex) ? IB_WC_SUCCESS : IB_WC_MW_BIND_ERR;
	else
		status = tqp_mw_bind(conn, &wqe->bind, &old);
	if (status)
		return tqp_wqe_refuse(conn, status);
	tqp_tx_msg_init(msg, conn);
	conn->tx.wqe.bytes = 0;
	tqp_wqe_set_completion(conn, msg, false);
	if (old) {
		msg->awaited = 1;	/* if the conn ends before, it did not succeed */
		tqp_mw_retire(old, msg, tqp_bind_done);
	}
	tqp_wqe_sent(conn);
	return true;
}

/*
 * A stock end's TCP acknowledges whatever arrives, so what it does not take
 * must not be sent: the answer is the one it would give.
 */
static bool tqp_peer_takes(const struct tqp_conn *conn, const struct tqp_op *op)
{
	return op->local || !READ_ONCE(conn->handshake.peer_stock) ||
	       op->bth_opcode == TCP_BTH_OP_SEND_ONLY || op->bth_opcode == TCP_BTH_OP_SEND_ONLY_IMM;
}

/* May the current WQE go to the peer, or be done here, now?  False: it waits, or it was refused. */
static bool tqp_wqe_admit(struct tqp_conn *conn)
{
	const struct tqp_op *op = conn->tx.wqe.op;

	if (!op)
		return tqp_wqe_refuse(conn, IB_WC_LOC_QP_OP_ERR);
	if (!tqp_peer_takes(conn, op))
		return tqp_wqe_refuse(conn, IB_WC_REM_INV_REQ_ERR);
	return tqp_wqe_may_go(conn);
}

/* The current WQE alone. */
static bool tqp_batch_one(struct tqp_conn *conn)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;
	enum ib_wc_status status;

	tqp_tx_timed_wait_over(conn, TQP_TX_WAIT_CREDIT);
	if (!wqe->loaded) {
		status = tqp_wqe_load(conn);
		if (status)
			return tqp_wqe_refuse(conn, status);
	}
	if (wqe->op->request)
		tqp_request_begin(conn);
	else
		tqp_begin_payload(conn);
	return true;
}

bool tqp_batch_next(struct tqp_conn *conn)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;

	do {
		if (!wqe->valid) {
			if (!tqp_sq_ready(conn, conn->tx.sq_next))
				return false;
			tqp_wqe_copy(conn);
		}
		if (tqp_train_gather(conn))
			return true;
		if (!tqp_wqe_admit(conn))
			return false;
		if (!wqe->op->local)
			return tqp_batch_one(conn);
	} while (tqp_wqe_local(conn) && conn->tx.turn > 0);	/* of those the turn has an end */
	return false;
}
