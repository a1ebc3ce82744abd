/* SPDX-License-Identifier: GPL-2.0 */
/* What trains that are copied and trains that are sent from where they lie share; sk lock. */
#ifndef TQP_TRAIN_H
#define TQP_TRAIN_H

#include "tx/wqe.h"

static inline u8 tqp_train_flags(const struct tqp_wqe *wqe)
{
	return wqe->flags & IB_SEND_SOLICITED ? TCP_BTH_F_SOLICITED : 0;
}

/* Is the current WQE one that may be of a train?  What is wrong with it is told when it is sent alone. */
static inline bool tqp_train_takes(struct tqp_conn *conn)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;

	return wqe->op && wqe->op->trains && !(wqe->flags & IB_SEND_FENCE) &&
	       !tqp_wqe_size(conn) && wqe->bytes;
}

/* WRITEs: the same key, and as far on as the second was from the first. */
static inline bool tqp_train_reaches(const struct tqp_tx_train *train, const struct tqp_wqe *wqe)
{
	u64 far = wqe->remote_addr - train->va;
	u32 step;

	if (wqe->rkey != train->like.rkey)
		return false;
	return train->messages > 1 ? far == (u64)train->step * train->like.length :
				     tqp_train_step(far, train->like.length, &step);
}

/* Is it like the train's messages, and where the next of them belongs? */
static inline bool tqp_train_fits(const struct tqp_tx_train *train, const struct tqp_wqe *wqe)
{
	if (wqe->bytes != train->like.length || wqe->op->bth_opcode != train->like.opcode ||
	    tqp_train_flags(wqe) != train->like.flags || train->messages == TCP_BTH_TRAIN_MAX_MESSAGES)
		return false;
	return !train->messages || train->like.opcode == TCP_BTH_OP_SEND_ONLY ||
	       tqp_train_reaches(train, wqe);
}

/* ---- train.c ---- */
/* The current WQE's message is the first of a train; @open: TCP is not told where it ends. */
void tqp_train_start(struct tqp_conn *conn, bool open);
/* The current WQE's record; it begins @at bytes behind what TCP has.  tqp_train_limit() left room. */
void tqp_train_log(struct tqp_conn *conn, struct tqp_tx_msg *msg, u32 at);

/* ---- train_pages.c ---- */
/*
 * The current WQE and those behind it that are like it, @limit of them at most,
 * become what is sent next, from where they lie; how many.  Zero: it goes alone.
 */
u32 tqp_train_pages(struct tqp_conn *conn, u32 limit);

#endif
