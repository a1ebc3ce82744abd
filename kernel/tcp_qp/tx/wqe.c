// SPDX-License-Identifier: GPL-2.0
/*
 * The send queue: the next WQE, copied once and checked, becomes one message.
 * A READ becomes a request for each of its SGEs, so that each response has one
 * target.
 */
#include "memory/memory.h"
#include "tx/tx.h"

static bool tqp_is_atomic(const struct tqp_op *op)
{
	return op->request && op->bth_opcode != TCP_BTH_OP_READ_REQUEST;
}

/* ---- the one copy ---- */

static void tqp_wqe_copy_bind(const struct rxe_send_wqe *from, struct tqp_mw_bind *bind)
{
	bind->old_key = READ_ONCE(from->wr.wr.mw.mw_rkey);
	bind->new_key = READ_ONCE(from->wr.wr.mw.rkey);
	bind->lkey = READ_ONCE(from->wr.wr.mw.mr_lkey);
	bind->access = READ_ONCE(from->wr.wr.mw.access);
	bind->va = READ_ONCE(from->wr.wr.mw.addr);
	bind->bytes = READ_ONCE(from->wr.wr.mw.length);
}

static void tqp_wqe_copy(const struct rxe_send_wqe *from, struct tqp_wqe *wqe)
{
	wqe->op = tqp_op_of(READ_ONCE(from->wr.opcode));
	wqe->wr_id = READ_ONCE(from->wr.wr_id);
	wqe->flags = READ_ONCE(from->wr.send_flags);
	wqe->ex = wqe->op && wqe->op->invalidates ? READ_ONCE(from->wr.ex.invalidate_rkey) :
						   ntohl(READ_ONCE(from->wr.ex.imm_data));
	wqe->num_sge = READ_ONCE(from->dma.num_sge);
	wqe->inline_bytes = READ_ONCE(from->dma.length);
	if (wqe->op && wqe->op->local) {
		tqp_wqe_copy_bind(from, &wqe->bind);
	} else if (wqe->op && tqp_is_atomic(wqe->op)) {
		wqe->remote_addr = READ_ONCE(from->wr.wr.atomic.remote_addr);
		wqe->compare_add = READ_ONCE(from->wr.wr.atomic.compare_add);
		wqe->swap = READ_ONCE(from->wr.wr.atomic.swap);
		wqe->rkey = READ_ONCE(from->wr.wr.atomic.rkey);
	} else {
		wqe->remote_addr = READ_ONCE(from->wr.wr.rdma.remote_addr);
		wqe->rkey = READ_ONCE(from->wr.wr.rdma.rkey);
	}
	wqe->part = 0;
	wqe->nr_sge = 0;
	wqe->loaded = false;
	wqe->valid = true;
}

/* SGEs with bytes; the length is ours to sum, never taken from the WQE. */
static enum ib_wc_status tqp_wqe_sges(struct tqp_conn *conn, const struct rxe_send_wqe *from,
				      u32 *total)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;
	u64 bytes = 0;

	if (wqe->num_sge > conn->qp->cap.max_send_sge || wqe->num_sge > TQP_SGE_MAX)
		return IB_WC_LOC_QP_OP_ERR;
	for (u32 i = 0; i < wqe->num_sge; i++) {
		struct ib_sge *sge = &wqe->sges[wqe->nr_sge];

		sge->addr = READ_ONCE(from->dma.sge[i].addr);
		sge->length = READ_ONCE(from->dma.sge[i].length);
		sge->lkey = READ_ONCE(from->dma.sge[i].lkey);
		bytes += sge->length;
		if (sge->length)
			wqe->nr_sge++;
	}
	if (bytes > tqp_message_max(conn))
		return IB_WC_LOC_LEN_ERR;
	*total = bytes;
	return IB_WC_SUCCESS;
}

/* ---- may it go now? ---- */

bool tqp_tx_has_credit(const struct tqp_conn *conn)
{
	return (s16)(READ_ONCE(conn->credit.peer_limit) - conn->tx.msn) > 0;
}

static bool tqp_tx_credit(struct tqp_conn *conn)
{
	if (tqp_tx_has_credit(conn)) {
		conn->credit.probe_delay_ms = TQP_PROBE_FIRST_MS;
		return true;
	}
	/* nothing tells us of receives posted after the handshake until we have sent something */
	if (conn->credit.probe_allowed || !conn->info.tx_messages) {
		conn->credit.probe_allowed = false;
		return true;
	}
	/* ask to be kicked first, then look again: the limit is written without the lock */
	tqp_tx_wait(&conn->tx, TQP_TX_WAIT_CREDIT);
	smp_mb();	/* pairs with the order of tqp_peer_credits() */
	if (tqp_tx_has_credit(conn))
		return true;
	conn->info.tx_credit_waits++;
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

static struct tqp_tx_msg *tqp_wqe_msg(struct tqp_conn *conn)
{
	return &conn->tx.msgs[conn->tx.sq_next & conn->qp->sq->mask];
}

static struct tqp_msg_rec tqp_wqe_record(const struct tqp_wqe *wqe, u32 length)
{
	struct tqp_msg_rec rec = {
		.length = length,
		.opcode = wqe->op->bth_opcode,
		.ext_bytes = tcp_bth_ext_bytes(wqe->op->bth_opcode),
		.flags = wqe->flags & IB_SEND_SOLICITED ? TCP_BTH_F_SOLICITED : 0,
		.ext4 = wqe->ex,
	};

	if (rec.ext_bytes == TCP_BTH_RETH_BYTES) {
		rec.va = wqe->remote_addr;
		rec.rkey = wqe->rkey;
		rec.dma_length = rec.opcode == TCP_BTH_OP_WRITE_ONLY_IMM ? wqe->ex : length;
	}
	return rec;
}

/* Pin the keys of what will be sent. */
static enum ib_wc_status tqp_pin_sges(struct tqp_conn *conn, struct tqp_tx_msg *msg)
{
	for (u32 i = 0; i < conn->tx.wqe.nr_sge; i++) {
		const struct ib_sge *sge = &conn->tx.wqe.sges[i];
		struct tqp_mr *mr = tqp_mr_get(conn->dev, sge->lkey);

		if (!mr)
			return IB_WC_LOC_PROT_ERR;
		msg->mrs[msg->nr_mrs++] = mr;
		if (tqp_mr_check(mr, conn->qp->pd->pdn, sge->addr, sge->length, 0))
			return IB_WC_LOC_PROT_ERR;
	}
	return IB_WC_SUCCESS;
}

static enum ib_wc_status tqp_load_inline(struct tqp_conn *conn, const struct rxe_send_wqe *from)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;

	if (wqe->inline_bytes > conn->qp->cap.max_inline_data ||
	    wqe->inline_bytes > TQP_INLINE_MAX_BYTES)
		return IB_WC_LOC_LEN_ERR;
	memcpy(wqe->data, from->dma.inline_data, wqe->inline_bytes);
	tqp_wqe_msg(conn)->bytes = wqe->inline_bytes;
	return IB_WC_SUCCESS;
}

static enum ib_wc_status tqp_load_payload(struct tqp_conn *conn, const struct rxe_send_wqe *from)
{
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);
	enum ib_wc_status status;

	if (conn->tx.wqe.flags & IB_SEND_INLINE)
		return tqp_load_inline(conn, from);
	status = tqp_wqe_sges(conn, from, &msg->bytes);
	if (status)
		return status;
	return tqp_pin_sges(conn, msg);
}

static void tqp_begin_payload(struct tqp_conn *conn)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);
	struct tqp_tx_source source = {
		.msg = msg,
		.rec = tqp_wqe_record(wqe, msg->bytes),
		.sges = wqe->sges,
		.nr_sge = wqe->nr_sge,
		.data = wqe->flags & IB_SEND_INLINE ? wqe->data : NULL,
		.ends_wqe = true,
	};

	source.rec.msn = wqe->op->untagged ? conn->tx.msn++ : conn->tx.write_msn++;
	tqp_tx_begin(conn, &source);
}

/* The sinks are looked up again when the response is here: nothing is pinned. */
static enum ib_wc_status tqp_check_sinks(struct tqp_conn *conn)
{
	enum ib_wc_status status = IB_WC_SUCCESS;

	rcu_read_lock();
	for (u32 i = 0; i < conn->tx.wqe.nr_sge && !status; i++) {
		const struct ib_sge *sge = &conn->tx.wqe.sges[i];
		struct tqp_mr *mr = tqp_mr_lookup(conn->dev, sge->lkey);

		if (!mr || tqp_mr_check(mr, conn->qp->pd->pdn, sge->addr, sge->length,
					IB_ACCESS_LOCAL_WRITE))
			status = IB_WC_LOC_PROT_ERR;
	}
	rcu_read_unlock();
	return status;
}

static enum ib_wc_status tqp_load_request(struct tqp_conn *conn, const struct rxe_send_wqe *from)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);
	enum ib_wc_status status;

	if (wqe->flags & IB_SEND_INLINE)
		return IB_WC_LOC_QP_OP_ERR;
	status = tqp_wqe_sges(conn, from, &msg->bytes);
	if (status)
		return status;
	if (tqp_is_atomic(wqe->op)) {
		if (wqe->nr_sge != 1 || wqe->sges[0].length < TCP_BTH_ATOMIC_RESPONSE_BYTES)
			return IB_WC_LOC_LEN_ERR;
		wqe->sges[0].length = TCP_BTH_ATOMIC_RESPONSE_BYTES;
		msg->bytes = TCP_BTH_ATOMIC_RESPONSE_BYTES;
	}
	return tqp_check_sinks(conn);
}

static void tqp_atomic_operands(struct tqp_wqe *wqe)
{
	bool swap = wqe->op->bth_opcode == TCP_BTH_OP_CMP_SWAP;
	struct tcp_bth_atomic_request request = {
		.va = wqe->remote_addr,
		.rkey = wqe->rkey,
		.swap_add = swap ? wqe->swap : wqe->compare_add,
		.compare = swap ? wqe->compare_add : 0,
	};

	tcp_bth_put_atomic_request(wqe->operands, &request);
}

static void tqp_read_operands(struct tqp_wqe *wqe, const struct ib_sge *sink)
{
	struct tcp_bth_read_request request = {
		.va = wqe->remote_addr,
		.rkey = wqe->rkey,
		.length = sink->length,
		.sink_va = sink->addr,
		.sink_key = sink->lkey,
	};

	tcp_bth_put_read_request(wqe->operands, &request);
}

/* One request: all of an atomic, or the next SGE of a READ. */
static void tqp_begin_request(struct tqp_conn *conn)
{
	static const struct ib_sge nothing;
	struct tqp_wqe *wqe = &conn->tx.wqe;
	const struct ib_sge *sink = wqe->nr_sge ? &wqe->sges[wqe->part] : &nothing;
	struct tqp_read read = {
		.va = sink->addr,
		.key = sink->lkey,
		.length = sink->length,
		.atomic = tqp_is_atomic(wqe->op),
	};
	struct tqp_tx_source source = {
		.msg = tqp_wqe_msg(conn),
		.rec = tqp_wqe_record(wqe, read.atomic ? TCP_BTH_ATOMIC_REQUEST_BYTES :
							 TCP_BTH_READ_REQUEST_BYTES),
		.data = wqe->operands,
		.ends_wqe = wqe->part + 1 >= wqe->nr_sge,
	};

	if (read.atomic)
		tqp_atomic_operands(wqe);
	else
		tqp_read_operands(wqe, sink);
	wqe->part++;
	wqe->remote_addr += sink->length;
	source.rec.msn = conn->tx.request_msn++;
	tqp_read_begin(conn, source.msg, source.rec.msn, &read);
	tqp_tx_begin(conn, &source);
}

static void tqp_wqe_promise(struct tqp_conn *conn, struct tqp_tx_msg *msg)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;

	msg->wr_id = wqe->wr_id;
	msg->wc_opcode = wqe->op->wc_opcode;
	msg->signaled = conn->qp->sq_sig_all || wqe->flags & IB_SEND_SIGNALED;
	msg->loaded = true;
}

static enum ib_wc_status tqp_wqe_load(struct tqp_conn *conn)
{
	const struct rxe_send_wqe *from = tqp_ring_entry(conn->qp->sq, conn->tx.sq_next);
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);
	struct tqp_wqe *wqe = &conn->tx.wqe;
	enum ib_wc_status status;

	tqp_tx_msg_init(msg, conn);
	status = wqe->op->request ? tqp_load_request(conn, from) : tqp_load_payload(conn, from);
	if (status) {
		tqp_tx_msg_put(msg);
		return status;
	}
	tqp_wqe_promise(conn, msg);
	wqe->loaded = true;
	return IB_WC_SUCCESS;
}

/* The WQE that cannot be sent completes with @status; everything after it is flushed. */
static bool tqp_wqe_refuse(struct tqp_conn *conn, enum ib_wc_status status)
{
	tqp_count(conn->dev, status == IB_WC_LOC_PROT_ERR ? TQP_C_tx_protection_errors :
							     TQP_C_wqe_invalid, 1);
	conn->tx.bad_status = status;
	conn->tx.bad_wr_id = conn->tx.wqe.wr_id;
	conn->tx.failed = true;
	tqp_tx_finish_bad(conn);
	return false;
}

void tqp_wqe_sent(struct tqp_conn *conn)
{
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);

	conn->tx.wqe.valid = false;
	conn->tx.sq_next = (conn->tx.sq_next + 1) & conn->qp->sq->mask;
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
	msg->bytes = 0;
	tqp_wqe_promise(conn, msg);
	if (old)
		tqp_mw_retire(old, msg, tqp_tx_msg_put);
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

/* The next WQE that is posted and may go now; a local one is done here, until the turn is over. */
static bool tqp_wqe_take(struct tqp_conn *conn)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;

	do {
		if (!wqe->valid) {
			if (!tqp_ring_posted(conn->qp->sq, conn->tx.sq_next))
				return false;
			tqp_wqe_copy(tqp_ring_entry(conn->qp->sq, conn->tx.sq_next), wqe);
		}
		if (!wqe->op)
			return tqp_wqe_refuse(conn, IB_WC_LOC_QP_OP_ERR);
		if (!tqp_peer_takes(conn, wqe->op))
			return tqp_wqe_refuse(conn, IB_WC_REM_INV_REQ_ERR);
		if (!tqp_wqe_may_go(conn))
			return false;
		if (!wqe->op->local)
			return true;
	} while (tqp_wqe_local(conn) && conn->tx.turn > 0);
	return false;
}

bool tqp_wqe_next(struct tqp_conn *conn)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;
	enum ib_wc_status status;

	if (!tqp_wqe_take(conn))
		return false;
	tqp_tx_wait_over(&conn->tx, TQP_TX_WAIT_CREDIT);
	if (!wqe->loaded) {
		status = tqp_wqe_load(conn);
		if (status)
			return tqp_wqe_refuse(conn, status);
	}
	if (wqe->op->request)
		tqp_begin_request(conn);
	else
		tqp_begin_payload(conn);
	return true;
}
