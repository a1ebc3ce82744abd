// SPDX-License-Identifier: GPL-2.0
/* A work request: what is copied of it beside wqe.h's, and its checks. */
#include "memory/memory.h"
#include "tx/train.h"

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

void tqp_wqe_copy_operands(struct tqp_wqe *wqe)
{
	const struct rxe_send_wqe *from = wqe->from;

	wqe->ex = wqe->op->invalidates ? READ_ONCE(from->wr.ex.invalidate_rkey) :
					 ntohl(READ_ONCE(from->wr.ex.imm_data));
	if (wqe->op->local) {
		tqp_wqe_copy_bind(from, &wqe->bind);
	} else if (tqp_is_atomic(wqe->op)) {
		wqe->remote_addr = READ_ONCE(from->wr.wr.atomic.remote_addr);
		wqe->compare_add = READ_ONCE(from->wr.wr.atomic.compare_add);
		wqe->swap = READ_ONCE(from->wr.wr.atomic.swap);
		wqe->rkey = READ_ONCE(from->wr.wr.atomic.rkey);
	} else {
		wqe->remote_addr = READ_ONCE(from->wr.wr.rdma.remote_addr);
		wqe->rkey = READ_ONCE(from->wr.wr.rdma.rkey);
	}
}

/* SGEs with bytes; the length is ours to sum, never taken from the WQE. */
enum ib_wc_status tqp_wqe_copy_sges(struct tqp_conn *conn)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;
	const struct rxe_send_wqe *from = wqe->from;
	u32 num_sge = READ_ONCE(from->dma.num_sge);
	u64 bytes = 0;

	if (num_sge > conn->qp->cap.max_send_sge || num_sge > TQP_SGE_MAX)
		return IB_WC_LOC_QP_OP_ERR;
	wqe->nr_sge = 0;
	for (u32 i = 0; i < num_sge; i++) {
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
	wqe->bytes = bytes;
	return IB_WC_SUCCESS;
}

/* ---- what those behind it say, until they are copied: hints ---- */

static const struct rxe_send_wqe *tqp_wqe_peek(const struct tqp_conn *conn, u32 index)
{
	const struct tqp_ring *sq = conn->qp->sq;

	return tqp_sq_ready(conn, index & sq->mask) ? tqp_ring_entry(sq, index) : NULL;
}

bool tqp_wqe_follows(const struct tqp_conn *conn, u32 index)
{
	const struct rxe_send_wqe *wqe = tqp_wqe_peek(conn, index);
	u32 opcode;

	if (!wqe)
		return false;
	opcode = READ_ONCE(wqe->wr.opcode);
	return (opcode == IB_WR_SEND || opcode == IB_WR_SEND_WITH_IMM) &&
	       !(READ_ONCE(wqe->wr.send_flags) & IB_SEND_FENCE) && tqp_tx_has_credit(conn) &&
	       !tqp_msglog_full(&conn->tx.log);
}

static u32 tqp_wqe_peek_bytes(const struct tqp_conn *conn, const struct rxe_send_wqe *next, u32 flags)
{
	u32 bytes = 0, num_sge;

	if (flags & IB_SEND_INLINE)
		return READ_ONCE(next->dma.length);
	num_sge = min(READ_ONCE(next->dma.num_sge), conn->qp->cap.max_send_sge);
	for (u32 i = 0; i < num_sge; i++)
		bytes += READ_ONCE(next->dma.sge[i].length);
	return bytes;
}

struct tqp_wqe_hint tqp_wqe_mixed_hint(const struct tqp_conn *conn, u32 i)
{
	const struct rxe_send_wqe *next = tqp_wqe_peek(conn, conn->tx.sq_next + i);
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	struct tqp_wqe_hint hint = {};
	u32 flags;

	if (!next || tqp_op_of(READ_ONCE(next->wr.opcode)) != wqe->op)
		return hint;
	flags = READ_ONCE(next->wr.send_flags);
	if (flags & IB_SEND_FENCE)
		return hint;
	if (!wqe->op->untagged) {
		if (READ_ONCE(next->wr.wr.rdma.rkey) != wqe->rkey)
			return hint;
		hint.va = READ_ONCE(next->wr.wr.rdma.remote_addr);
	}
	hint.bytes = tqp_wqe_peek_bytes(conn, next, flags);
	return hint;
}

bool tqp_wqe_alike(const struct tqp_conn *conn)
{
	const struct rxe_send_wqe *next = tqp_wqe_peek(conn, conn->tx.sq_next + 1);
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	u32 flags, step;

	if (!next || tqp_op_of(READ_ONCE(next->wr.opcode)) != wqe->op)
		return false;
	flags = READ_ONCE(next->wr.send_flags);
	if (tqp_wqe_peek_bytes(conn, next, flags) != wqe->bytes ||
	    (flags ^ wqe->flags) & (IB_SEND_FENCE | IB_SEND_SOLICITED))
		return false;
	return !wqe->op->operands ||
	       (READ_ONCE(next->wr.wr.rdma.rkey) == wqe->rkey &&
		tqp_train_step(READ_ONCE(next->wr.wr.rdma.remote_addr) - wqe->remote_addr, wqe->bytes,
			       &step));
}

/* ---- checks ---- */

enum ib_wc_status tqp_wqe_pin(struct tqp_conn *conn, struct tqp_tx_msg *msg, struct tqp_mr *pinned)
{
	for (u32 i = 0; i < conn->tx.wqe.nr_sge; i++) {
		const struct ib_sge *sge = &conn->tx.wqe.sges[i];

		if (pinned && pinned->key == sge->lkey)
			refcount_inc(&pinned->refs);
		else
			pinned = tqp_mr_get(conn->dev, sge->lkey);
		if (!pinned)
			return IB_WC_LOC_PROT_ERR;
		msg->mrs[msg->nr_mrs++] = pinned;
		if (tqp_mr_check(pinned, conn->qp->pd->pdn, sge->addr, sge->length, 0))
			return IB_WC_LOC_PROT_ERR;
	}
	return IB_WC_SUCCESS;
}

/*
 * What the NIC may complete is copied, if it is short: nobody waits then for TCP to give
 * its pages back.  NULL: it is not, or something is wrong with it, which pinning finds.
 */
static const u8 *tqp_wqe_copy_payload(struct tqp_conn *conn)
{
	struct tqp_tx_train *train = &conn->tx.train;
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	u8 *to;

	static_assert((int)TQP_SENDS_COPY_BYTES <= (int)TQP_TRAIN_COPY_BYTES);
	if (!wqe->nr_sge || wqe->bytes > TQP_SENDS_COPY_BYTES || !tqp_wqe_is_signaled(conn) ||
	    !tqp_sends_may(conn) || tqp_train_waits(conn) || !tqp_train_has_buffer(train))
		return NULL;
	to = train->bytes;
	for (u32 i = 0; i < wqe->nr_sge; to += wqe->sges[i++].length)
		if (!tqp_mr_copy_from_ram(conn->dev, conn->qp->pd->pdn, &wqe->sges[i], to))
			return NULL;
	return train->bytes;
}

static enum ib_wc_status tqp_load_payload(struct tqp_conn *conn, struct tqp_tx_msg *msg)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;

	if (wqe->flags & IB_SEND_INLINE) {
		tqp_wqe_copy_inline(wqe, wqe->data);
		wqe->copy = wqe->data;
		return IB_WC_SUCCESS;
	}
	wqe->copy = tqp_wqe_copy_payload(conn);
	return wqe->copy ? IB_WC_SUCCESS : tqp_wqe_pin(conn, msg, NULL);
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

static enum ib_wc_status tqp_load_request(struct tqp_conn *conn)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;

	if (tqp_is_atomic(wqe->op)) {
		if (wqe->nr_sge != 1 || wqe->bytes < TCP_BTH_ATOMIC_RESPONSE_BYTES)
			return IB_WC_LOC_LEN_ERR;
		wqe->sges[0].length = TCP_BTH_ATOMIC_RESPONSE_BYTES;
		wqe->bytes = TCP_BTH_ATOMIC_RESPONSE_BYTES;
	}
	return tqp_check_sinks(conn);
}

enum ib_wc_status tqp_wqe_load(struct tqp_conn *conn)
{
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);
	struct tqp_wqe *wqe = &conn->tx.wqe;
	enum ib_wc_status status;

	if (wqe->op->request && wqe->flags & IB_SEND_INLINE)
		return IB_WC_LOC_QP_OP_ERR;
	status = tqp_wqe_size(conn);
	if (status)
		return status;
	tqp_tx_msg_init(msg, conn);
	wqe->copy = NULL;
	status = wqe->op->request ? tqp_load_request(conn) : tqp_load_payload(conn, msg);
	if (status) {
		tqp_tx_msg_put(msg);
		return status;
	}
	tqp_wqe_set_completion(conn, msg, wqe->copy);
	wqe->loaded = true;
	return IB_WC_SUCCESS;
}

void tqp_wqe_sent(struct tqp_conn *conn)
{
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);

	tqp_wqe_advance(conn);
	tqp_tx_msg_put(msg);
}
