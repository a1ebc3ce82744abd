// SPDX-License-Identifier: GPL-2.0
/*
 * Trains of messages that are sent from where they lie.
 *
 * An skb can hold one ubuf only, so that all messages of a train are done
 * together, by the ubuf of the first one, their lead.  Each pins its own regions
 * and has its own record, so that deregistration finds what was not acknowledged.
 * TCP gets all of a train's pages by one call and is told where the train ends.
 */
#include <linux/slab.h>
#include "memory/memory.h"
#include "tx/train.h"

static bool tqp_pages_fit(const struct tqp_conn *conn, const struct tqp_train_pages *pages)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;

	return wqe->nr_sge && pages->bytes + wqe->bytes <= TQP_TRAIN_BYTES &&
	       tqp_train_fits(&conn->tx.train, wqe);
}

/* The current WQE's pages go behind the others'.  False: too many fragments, and there are those of before. */
static bool tqp_pages_lay(struct tqp_conn *conn, const struct tqp_tx_msg *msg,
			  struct tqp_train_pages *pages)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	struct bio_vec *last = pages->bvecs ? &conn->tx.pages[pages->bvecs - 1] : NULL, before;
	u32 bvecs = pages->bvecs, done;

	if (last)
		before = *last;
	for (u32 i = 0; i < wqe->nr_sge; i++) {
		const struct ib_sge *sge = &wqe->sges[i];

		bvecs = tqp_mr_bvecs(msg->mrs[i], sge->addr, sge->length, conn->tx.pages, bvecs,
				     TQP_TRAIN_BVECS, &done);
		if (done < sge->length) {
			if (last)
				*last = before;
			return false;
		}
		pages->end = sge->addr + sge->length;
		pages->room = tqp_mr_room(msg->mrs[i], pages->end);
	}
	pages->bvecs = bvecs;
	return true;
}

/* The same where it goes on in the page of the region in which the one before it ends. */
static bool tqp_pages_go_on(struct tqp_conn *conn, const struct tqp_tx_msg *msg,
			    struct tqp_train_pages *pages)
{
	const struct ib_sge *sge = conn->tx.wqe.sges;

	if (conn->tx.wqe.nr_sge != 1 || msg->mrs[0] != pages->pinned || sge->addr != pages->end ||
	    sge->length > pages->room)
		return false;
	conn->tx.pages[pages->bvecs - 1].bv_len += sge->length;
	pages->end += sge->length;
	pages->room -= sge->length;
	return true;
}

void tqp_pages_init(struct tqp_conn *conn, struct tqp_tx_msg *msg, const struct tqp_train_pages *pages)
{
	if (pages->lead)
		tqp_tx_msg_init_behind(msg, pages->lead);
	else
		tqp_tx_msg_init(msg, conn);
}

bool tqp_pages_take(struct tqp_conn *conn, struct tqp_tx_msg *msg, struct tqp_train_pages *pages)
{
	if (tqp_wqe_pin(conn, msg, pages->pinned) ||
	    (!tqp_pages_go_on(conn, msg, pages) && !tqp_pages_lay(conn, msg, pages))) {
		/* It goes alone, where what is wrong with it is told. */
		tqp_tx_msg_undo(msg);
		return false;
	}
	pages->pinned = msg->mrs[msg->nr_mrs - 1];
	return true;
}

/* The current WQE becomes the train's first, or one behind it.  False: it cannot. */
static bool tqp_pages_add(struct tqp_conn *conn, struct tqp_train_pages *pages)
{
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);

	if (!tqp_pages_fit(conn, pages))
		return false;
	tqp_pages_init(conn, msg, pages);
	if (!tqp_pages_take(conn, msg, pages))
		return false;
	if (!pages->lead)
		pages->lead = msg;
	tqp_wqe_set_completion(conn, msg, false);
	msg->unacked = 1;
	tqp_train_log(conn, msg, pages->bytes);
	tqp_wqe_advance(conn);
	pages->bytes += conn->tx.train.like.length;
	pages->messages++;
	return true;
}

void tqp_pages_begin(struct tqp_conn *conn, const struct tqp_train_pages *pages)
{
	struct tqp_tx_msg *lead = pages->lead;

	lead->together = pages->messages;
	refcount_add(pages->messages, &lead->ubuf.refcnt);
	conn->tx.cur = (struct tqp_tx_cur) {
		.active = true,
		.nr_bvecs = pages->bvecs,
		.left = pages->bytes,
		.msg = lead,
	};
}

bool tqp_pages_ready(struct tqp_conn *conn)
{
	if (!conn->tx.pages)
		conn->tx.pages = kmalloc_array(TQP_TRAIN_BVECS, sizeof(*conn->tx.pages),
					       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return conn->tx.pages;		/* else one by one */
}

u32 tqp_train_pages(struct tqp_conn *conn, u32 limit)
{
	struct tqp_train_pages pages = {};

	limit = min(limit, (conn->tx.sq_mask + 1) / TQP_TRAIN_SQ_SHARE);
	if (limit < 2 || conn->tx.wqe.bytes > TQP_TRAIN_BYTES / 2 || !tqp_wqe_alike(conn) ||
	    !tqp_pages_ready(conn))
		return 0;
	tqp_train_start(conn, false);
	while (tqp_pages_add(conn, &pages) && pages.messages < limit) {
		tqp_wqe_copy(conn);
		if (!tqp_train_takes(conn))
			break;
	}
	if (pages.messages)
		tqp_pages_begin(conn, &pages);
	return pages.messages;
}
