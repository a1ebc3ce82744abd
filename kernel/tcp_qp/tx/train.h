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

/* What has been gathered of a train that is sent from where it lies. */
struct tqp_train_pages {
	struct tqp_tx_msg *lead;
	struct tqp_mr *pinned;	/* by the newest: mostly the next one is of it, too */
	u64 end;		/* and lies behind it, */
	u32 room;		/* where so much more is of one page of the region */
	u32 messages;
	u32 bvecs;
	u32 bytes;
};

/* ---- train.c ---- */
/* The current WQE's message is the first of a train; @open: TCP is not told where it ends. */
void tqp_train_start(struct tqp_conn *conn, bool open);
/* There is room for what is copied together. */
bool tqp_train_has_buffer(struct tqp_tx_train *train);
/* The current WQE's record; it begins @at bytes behind what TCP has.  tqp_train_limit() left room. */
void tqp_train_log(struct tqp_conn *conn, struct tqp_tx_msg *msg, u32 at);

/* ---- train_pages.c ---- */
/*
 * The current WQE and those behind it that are like it, @limit of them at most,
 * become what is sent next, from where they lie; how many.  Zero: it goes alone.
 */
u32 tqp_train_pages(struct tqp_conn *conn, u32 limit);
/* There is room for the page fragments of one. */
bool tqp_pages_ready(struct tqp_conn *conn);
/* The current WQE becomes @msg's, the train's first or one behind it. */
void tqp_pages_init(struct tqp_conn *conn, struct tqp_tx_msg *msg, const struct tqp_train_pages *pages);
/* Its pages are pinned and go behind the others'.  False: they can't, and @msg is undone. */
bool tqp_pages_take(struct tqp_conn *conn, struct tqp_tx_msg *msg, struct tqp_train_pages *pages);
/* From here on TCP may have it; the sender's reference is the current message's. */
void tqp_pages_begin(struct tqp_conn *conn, const struct tqp_train_pages *pages);

/* ---- train_mixed.c ---- */
/* As tqp_train_pages(), of SENDs of any lengths, or of WRITEs of any lengths and targets. */
u32 tqp_train_mixed(struct tqp_conn *conn, u32 limit);

#endif
