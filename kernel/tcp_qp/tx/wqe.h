/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The current WQE, the one at sq_next: copied once from the ring, then checked.
 * Whatever becomes of it, alone or with others, goes through here; sk lock.
 */
#ifndef TQP_WQE_H
#define TQP_WQE_H

#include "offload/offload.h"
#include "tx/tx.h"

static inline bool tqp_is_atomic(const struct tqp_op *op)
{
	return op->request && op->bth_opcode != TCP_BTH_OP_READ_REQUEST;
}

/* WQEs from @from on that are posted and may go: a bell holds back the others. */
static inline u32 tqp_sq_ready(const struct tqp_conn *conn, u32 from)
{
	u32 posted = tqp_ring_posted(conn->qp->sq, from), ahead, open;

	if (likely(!conn->tx.gated))
		return posted;
	open = (conn->tx.gate - conn->tx.sq_next) & conn->tx.sq_mask;
	ahead = (from - conn->tx.sq_next) & conn->tx.sq_mask;
	return open > ahead ? min(posted, open - ahead) : 0;
}

/* Where its completion is prepared. */
static inline struct tqp_tx_msg *tqp_wqe_msg(const struct tqp_conn *conn)
{
	return &conn->tx.msgs[conn->tx.sq_next];
}

/* What is not the same for all: address, keys, immediate, operands. */
void tqp_wqe_copy_operands(struct tqp_wqe *wqe);

/* It is posted: copy all but its payload.  Inline, as it is done for each of many small ones. */
static inline void tqp_wqe_copy(struct tqp_conn *conn)
{
	const struct rxe_send_wqe *from = tqp_ring_entry(conn->qp->sq, conn->tx.sq_next);
	struct tqp_wqe *wqe = &conn->tx.wqe;

	wqe->from = from;
	wqe->op = tqp_op_of(READ_ONCE(from->wr.opcode));
	wqe->wr_id = READ_ONCE(from->wr.wr_id);
	wqe->flags = READ_ONCE(from->wr.send_flags);
	wqe->ex = 0;
	wqe->part = 0;
	wqe->sized = false;
	wqe->loaded = false;
	wqe->valid = true;
	if (wqe->op && wqe->op->operands)
		tqp_wqe_copy_operands(wqe);
}

enum ib_wc_status tqp_wqe_copy_sges(struct tqp_conn *conn);

static inline enum ib_wc_status tqp_wqe_size_inline(struct tqp_conn *conn)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;
	u32 bytes = READ_ONCE(wqe->from->dma.length);

	if (bytes > conn->qp->cap.max_inline_data || bytes > TQP_INLINE_MAX_BYTES)
		return IB_WC_LOC_LEN_ERR;
	wqe->bytes = bytes;
	wqe->nr_sge = 0;
	return IB_WC_SUCCESS;
}

/* 0, and nr_sge, sges and bytes are known; or what is wrong with them.  May be called again. */
static inline enum ib_wc_status tqp_wqe_size(struct tqp_conn *conn)
{
	struct tqp_wqe *wqe = &conn->tx.wqe;
	enum ib_wc_status status;

	if (wqe->sized)
		return IB_WC_SUCCESS;
	status = wqe->flags & IB_SEND_INLINE ? tqp_wqe_size_inline(conn) : tqp_wqe_copy_sges(conn);
	wqe->sized = !status;
	return status;
}

/* The bytes of an inline one. */
static inline void tqp_wqe_copy_inline(const struct tqp_wqe *wqe, u8 *to)
{
	u32 bytes = wqe->bytes;

	OPTIMIZER_HIDE_VAR(bytes);	/* memcpy()'s own way, not the compiler's `rep movs` */
	memcpy(to, wqe->from->dma.inline_data, bytes);
}

/*
 * May a train have WRITEs of @length so @far apart?  Then *@step is that, in lengths.
 * Not one over the other: who copies a repeated segment of several must not cover what
 * was placed of its last one.
 */
static inline bool tqp_train_step(u64 far, u32 length, u32 *step)
{
	if (!far || far % length || far / length > U16_MAX)
		return false;
	*step = far / length;
	return true;
}

/* Whoever polls for it may take an answer for later than it: the NIC is told before this is sent. */
static inline void tqp_wqe_count_signaled(struct tqp_conn *conn, struct tqp_tx_msg *msg)
{
	if (!msg->signaled || msg->counted || conn->tx.late)
		return;
	msg->counted = true;
	conn->tx.signaled++;
	if (conn->offload.shadow)
		WRITE_ONCE(conn->offload.shadow->awaits, cpu_to_le32(1));
}

static inline bool tqp_wqe_is_signaled(const struct tqp_conn *conn)
{
	return conn->qp->sq_sig_all || conn->tx.wqe.flags & IB_SEND_SIGNALED;
}

/* What its completion will say.  @copied: TCP copies it, and nobody waits for pages. */
static inline void tqp_wqe_set_completion(struct tqp_conn *conn, struct tqp_tx_msg *msg,
					  bool copied)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;

	msg->wr_id = wqe->wr_id;
	msg->bytes = wqe->bytes;
	msg->wc_opcode = wqe->op->wc_opcode;
	msg->signaled = tqp_wqe_is_signaled(conn);
	msg->loaded = true;
	conn->tx.visible |= msg->signaled;
	msg->nic = copied && msg->signaled && tqp_sends_may(conn);
	if (!msg->nic)
		tqp_wqe_count_signaled(conn, msg);
}

/* It has its place in the stream: the next one is the current one. */
static inline void tqp_wqe_advance(struct tqp_conn *conn)
{
	conn->tx.wqe.valid = false;
	conn->tx.sq_next = (conn->tx.sq_next + 1) & conn->qp->sq->mask;
}

/* The record of a message of @length bytes of @wqe's, its number left to the caller. */
static inline struct tqp_msg_rec tqp_wqe_record(const struct tqp_wqe *wqe, u32 length)
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

/* ---- wqe.c ---- */
/* All of it is checked, its memory pinned, and its completion set. */
enum ib_wc_status tqp_wqe_load(struct tqp_conn *conn);
/*
 * Pin the keys of what will be sent: they are @msg's, also those before one that
 * is refused.  @pinned: one that is already, for this connection and under the
 * same hold of its lock; or NULL.
 */
enum ib_wc_status tqp_wqe_pin(struct tqp_conn *conn, struct tqp_tx_msg *msg, struct tqp_mr *pinned);
/* The current message was its last. */
void tqp_wqe_sent(struct tqp_conn *conn);
/* Will the WQE at @index go to TCP at once?  The one before it holds its last partial segment back then. */
bool tqp_wqe_follows(const struct tqp_conn *conn, u32 index);
/* What a WQE that is posted says, until it is copied. */
struct tqp_wqe_hint {
	u32 bytes;
	u64 va;			/* of a WRITE */
};

/* The @i-th behind it, if both may be of a mixed train; else its bytes are 0. */
struct tqp_wqe_hint tqp_wqe_mixed_hint(const struct tqp_conn *conn, u32 i);
/* Could the next one be of a train with it?  @wqe.op has trains. */
bool tqp_wqe_alike(const struct tqp_conn *conn);

#endif
