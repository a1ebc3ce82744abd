// SPDX-License-Identifier: GPL-2.0
/*
 * Mixed trains: SENDs of any lengths, or WRITEs of any lengths and to any targets
 * of one key, one behind the other, as one burst.
 *
 * Their lengths, or targets, go first, as a message of their own (LENGTHS, TARGETS),
 * so that one option describes all segments.  Long ones are sent from where they lie,
 * as in train_pages.c; short ones, and what is inline, are copied into pages that are
 * the train's until it is done: of fragments an skb has few.
 */
#include "memory/memory.h"
#include "tx/train.h"
#include "wire/targets.h"

struct tqp_train_mixed {
	struct tqp_train_pages pages;
	struct tcp_bth_mixed all;
	struct page *copies;	/* TQP_MIXED_COPY_BYTES, of which */
	u32 copied;		/* these are used */
	u8 number;		/* in tx.copies, plus one */
	bool writes;
	struct tqp_targets targets;	/* of WRITEs */
};

/* ---- pages for what is copied ---- */

/* Atomic: the one who takes holds the sk lock, who gives back holds nothing. */
static bool tqp_tx_copies_get(struct tqp_conn *conn, struct tqp_train_mixed *mixed)
{
	struct tqp_tx_copies *copies = conn->tx.copies;
	u32 i;

	if (!copies) {
		copies = kzalloc(sizeof(*copies), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		conn->tx.copies = copies;
	}
	if (!copies)
		return false;
	i = find_first_zero_bit(copies->used, TQP_MIXED_COPIES);
	if (i == TQP_MIXED_COPIES)
		return false;
	mixed->copies = alloc_pages(GFP_KERNEL_ACCOUNT | __GFP_COMP | __GFP_NOWARN | __GFP_NORETRY,
				    TQP_MIXED_COPY_ORDER);
	if (!mixed->copies)
		return false;
	test_and_set_bit_lock(i, copies->used);
	copies->pages[i] = mixed->copies;
	mixed->number = i + 1;
	return true;
}

static void tqp_tx_copies_give(struct tqp_tx_copies *copies, u8 number)
{
	__free_pages(copies->pages[number - 1], TQP_MIXED_COPY_ORDER);
	clear_bit_unlock(number - 1, copies->used);
}

void tqp_tx_copies_put(struct tqp_tx_msg *lead)
{
	tqp_tx_copies_give(lead->conn->tx.copies, lead->copies);
	lead->copies = 0;
}

/* ---- gathering ---- */

/* Does it go where one of the @count before it does, too? */
static bool tqp_mixed_overlaps(const struct tqp_wqe_hint *hints, u32 count)
{
	const struct tqp_wqe_hint *it = &hints[count];

	for (u32 i = 0; i < count; i++)
		if (it->va - hints[i].va < hints[i].bytes || hints[i].va - it->va < it->bytes)
			return true;
	return false;
}

/* Could they be a train without a table? */
static bool tqp_mixed_even(const struct tqp_wqe_hint *hints, bool writes)
{
	u64 far = hints[1].va - hints[0].va;
	u32 step;

	for (u32 i = 1; i < TQP_MIXED_MIN_MESSAGES; i++)
		if (hints[i].bytes != hints[0].bytes || hints[i].va - hints[i - 1].va != far)
			return false;
	return !writes || tqp_train_step(far, hints[0].bytes, &step);
}

/* Are enough posted that need a table?  Hints, until each is copied. */
static bool tqp_mixed_pays(const struct tqp_conn *conn, bool writes, u32 limit)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;
	struct tqp_wqe_hint hints[TQP_MIXED_MIN_MESSAGES] = {
		{ .bytes = wqe->bytes, .va = writes ? wqe->remote_addr : 0 },
	};
	u32 sum = wqe->bytes;

	if (limit < TQP_MIXED_MIN_MESSAGES || sum > TQP_TRAIN_BYTES / TQP_MIXED_MIN_MESSAGES)
		return false;
	for (u32 i = 1; i < TQP_MIXED_MIN_MESSAGES; i++) {
		hints[i] = tqp_wqe_mixed_hint(conn, i);
		if (!hints[i].bytes || hints[i].bytes > TQP_TRAIN_BYTES - sum ||
		    (writes && tqp_mixed_overlaps(hints, i)))
			return false;
		sum += hints[i].bytes;
	}
	return !tqp_mixed_even(hints, writes);
}

/* May a peer be sent such a train of the current WQE and others? */
static bool tqp_mixed_peer(const struct tqp_conn *conn)
{
	return conn->tx.wqe.op->untagged ? READ_ONCE(conn->handshake.peer_mixed_trains) :
					   READ_ONCE(conn->handshake.peer_write_mixed_trains);
}

/* A short one goes without a fragment of its own where it lies right behind the one before. */
static bool tqp_mixed_copies(const struct tqp_wqe *wqe, const struct tqp_train_pages *pages)
{
	if (!wqe->nr_sge)
		return true;
	return wqe->bytes <= TQP_MIXED_COPY_MESSAGE_BYTES &&
	       (wqe->nr_sge > 1 || wqe->bytes > pages->room || wqe->sges[0].addr != pages->end);
}

static bool tqp_mixed_fill(struct tqp_conn *conn, u8 *to)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;

	if (!wqe->nr_sge) {
		tqp_wqe_copy_inline(wqe, to);
		return true;
	}
	for (u32 i = 0; i < wqe->nr_sge; i++) {
		if (!tqp_mr_copy_from(conn->dev, conn->qp->pd->pdn, &wqe->sges[i], to))
			return false;
		to += wqe->sges[i].length;
	}
	return true;
}

/* What was copied goes behind the others, or behind what was copied just before. */
static bool tqp_mixed_lay(struct tqp_conn *conn, struct tqp_train_mixed *mixed)
{
	struct tqp_train_pages *pages = &mixed->pages;
	struct bio_vec *last = pages->bvecs ? &conn->tx.pages[pages->bvecs - 1] : NULL;
	struct page *page = nth_page(mixed->copies, mixed->copied >> PAGE_SHIFT);
	u32 bytes = conn->tx.wqe.bytes, at = offset_in_page(mixed->copied);

	if (last && bvec_phys(last) + last->bv_len == page_to_phys(page) + at) {
		last->bv_len += bytes;
	} else {
		if (pages->bvecs == TQP_TRAIN_BVECS)
			return false;
		bvec_set_page(&conn->tx.pages[pages->bvecs++], page, bytes, at);
	}
	mixed->copied += bytes;
	pages->room = 0;	/* what comes next does not go on where the one before ended */
	return true;
}

static bool tqp_mixed_copy(struct tqp_conn *conn, struct tqp_tx_msg *msg,
			   struct tqp_train_mixed *mixed)
{
	if (conn->tx.wqe.bytes <= TQP_MIXED_COPY_BYTES - mixed->copied &&
	    tqp_mixed_fill(conn, page_address(mixed->copies) + mixed->copied) &&
	    tqp_mixed_lay(conn, mixed))
		return true;
	tqp_tx_msg_undo(msg);
	return false;
}

/* The current WQE's record, behind that of the table. */
static void tqp_mixed_log(struct tqp_conn *conn, struct tqp_tx_msg *msg,
			  const struct tqp_train_mixed *mixed)
{
	u32 slot = conn->tx.log.tail & conn->tx.log.mask;
	struct tqp_msg_rec *rec = &conn->tx.log.rec[slot];

	*rec = tqp_wqe_record(&conn->tx.wqe, conn->tx.wqe.bytes);
	rec->start_seq = mixed->pages.bytes;	/* from the train's start on */
	rec->msn = mixed->writes ? conn->tx.write_msn++ : conn->tx.msn++;
	rec->flags |= TCP_BTH_F_MORE;
	rec->mixed = true;
	rec->train_place = mixed->pages.messages;
	conn->tx.log_msg[slot] = msg;
	tqp_msglog_commit(&conn->tx.log);
}

static void tqp_mixed_entry(struct tqp_conn *conn, struct tqp_train_mixed *mixed)
{
	u32 solicited = tqp_train_flags(&conn->tx.wqe) ? TCP_BTH_LENGTHS_SOLICITED : 0;
	u32 entry = conn->tx.wqe.bytes | solicited;

	if (mixed->writes) {	/* a WRITE's is there already */
		tcp_bth_targets_add(&mixed->all, conn->tx.wqe.bytes, conn->tx.wqe.remote_addr);
		return;
	}
	tcp_bth_put32(conn->tx.train.bytes + mixed->pages.messages * TCP_BTH_LENGTHS_ENTRY_BYTES,
		      entry);
	tcp_bth_mixed_add(&mixed->all, entry);
}

/* Does the current WQE go where nothing of the train does? */
static bool tqp_mixed_reaches(struct tqp_conn *conn, struct tqp_train_mixed *mixed)
{
	const struct tqp_wqe *wqe = &conn->tx.wqe;

	return !mixed->writes || tqp_targets_add(&mixed->targets, wqe->bytes, wqe->remote_addr);
}

/* The current WQE becomes the train's first, or one behind it.  False: it cannot. */
static bool tqp_mixed_add(struct tqp_conn *conn, struct tqp_train_mixed *mixed)
{
	struct tqp_train_pages *pages = &mixed->pages;
	struct tqp_tx_msg *msg = tqp_wqe_msg(conn);

	if (conn->tx.wqe.bytes > TQP_TRAIN_BYTES - pages->bytes || !tqp_mixed_reaches(conn, mixed))
		return false;
	tqp_pages_init(conn, msg, pages);
	if (tqp_mixed_copies(&conn->tx.wqe, pages) ? !tqp_mixed_copy(conn, msg, mixed) :
						     !tqp_pages_take(conn, msg, pages)) {
		if (mixed->writes)
			tqp_targets_undo(&mixed->targets);
		return false;
	}
	if (!pages->lead)
		pages->lead = msg;
	tqp_wqe_set_completion(conn, msg, false);
	msg->unacked = 1;
	tqp_mixed_log(conn, msg, mixed);
	tqp_mixed_entry(conn, mixed);
	pages->bytes += conn->tx.wqe.bytes;
	pages->messages++;
	tqp_wqe_advance(conn);
	return true;
}

/* May the current WQE be of it? */
static bool tqp_mixed_takes(struct tqp_conn *conn, const struct tqp_msg_rec *first)
{
	return tqp_train_takes(conn) && conn->tx.wqe.op->bth_opcode == first->opcode &&
	       (conn->tx.wqe.op->untagged || conn->tx.wqe.rkey == first->rkey);
}

/* The record of the table, before those of its messages; its length is told when they are known. */
static struct tqp_msg_rec *tqp_mixed_log_table(struct tqp_conn *conn, bool writes)
{
	struct tqp_msg_rec *rec = tqp_msglog_next(&conn->tx.log);

	*rec = (struct tqp_msg_rec) {
		.start_seq = tcp_sk(conn->sk)->write_seq,
		.msn = writes ? conn->tx.write_msn : conn->tx.msn,
		.opcode = writes ? TCP_BTH_OP_TARGETS : TCP_BTH_OP_LENGTHS,
		.flags = TCP_BTH_F_MORE,
	};
	conn->tx.log_msg[conn->tx.log.tail & conn->tx.log.mask] = NULL;
	tqp_msglog_commit(&conn->tx.log);
	return rec;
}

/* All of it is known: say so in its records, and hand it over behind its table. */
static void tqp_mixed_hand_over(struct tqp_conn *conn, struct tqp_train_mixed *mixed,
				    struct tqp_msg_rec *table)
{
	u32 start, slot = conn->tx.log.tail - mixed->pages.messages;
	struct tqp_tx_train *train = &conn->tx.train;
	struct tqp_msg_rec *rec;

	table->length = mixed->writes ? tcp_bth_targets_bytes(mixed->pages.messages) :
					mixed->pages.messages * TCP_BTH_LENGTHS_ENTRY_BYTES;
	start = table->start_seq + table->length;
	for (; slot != conn->tx.log.tail; slot++) {
		rec = &conn->tx.log.rec[slot & conn->tx.log.mask];
		rec->start_seq += start;
		rec->mixed_start = start;
		rec->mixed_bytes = mixed->all.bytes;
		rec->mixed_check = mixed->all.check;
	}
	train->at = 0;
	train->end = table->length;
	mixed->pages.lead->copies = mixed->number;
	tqp_pages_begin(conn, &mixed->pages);
}

/* The table of its messages, of which there are none yet: its record. */
static struct tqp_msg_rec *tqp_mixed_begin_table(struct tqp_conn *conn, struct tqp_train_mixed *mixed)
{
	u32 rkey = conn->tx.wqe.rkey;

	if (mixed->writes) {
		tcp_bth_targets_begin(&mixed->all, rkey);
		tqp_targets_begin(&mixed->targets, conn->tx.train.bytes, rkey);
	} else {
		tcp_bth_mixed_begin(&mixed->all);
	}
	return tqp_mixed_log_table(conn, mixed->writes);
}

u32 tqp_train_mixed(struct tqp_conn *conn, u32 limit)
{
	struct tqp_train_mixed mixed;
	struct tqp_msg_rec *table;

	if (!tqp_mixed_peer(conn))
		return 0;
	mixed.pages = (struct tqp_train_pages){};
	mixed.copied = 0;
	mixed.writes = !conn->tx.wqe.op->untagged;
	limit = min3(limit, (conn->tx.sq_mask + 1) / TQP_TRAIN_SQ_SHARE,
		     mixed.writes ? (u32)TCP_BTH_TARGETS_MAX_MESSAGES :
				    (u32)TCP_BTH_MIXED_MAX_MESSAGES);
	limit = min(limit, tqp_msglog_room(&conn->tx.log) - 1);
	if (!tqp_mixed_pays(conn, mixed.writes, limit) || !tqp_train_has_buffer(&conn->tx.train) ||
	    !tqp_pages_ready(conn) || !tqp_tx_copies_get(conn, &mixed))
		return 0;
	tqp_train_start(conn, false);
	table = tqp_mixed_begin_table(conn, &mixed);
	while (tqp_mixed_add(conn, &mixed) && mixed.pages.messages < limit) {
		tqp_wqe_copy(conn);
		if (!tqp_mixed_takes(conn, &conn->tx.train.like))
			break;
	}
	if (!mixed.pages.messages) {
		conn->tx.log.tail--;
		tqp_tx_copies_give(conn->tx.copies, mixed.number);
		return 0;
	}
	tqp_mixed_hand_over(conn, &mixed, table);
	return mixed.pages.messages;
}
