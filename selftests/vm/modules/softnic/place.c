// SPDX-License-Identifier: GPL-2.0
/*
 * The placement checks, in the order of docs/offload-provider.md.  The first one
 * that fails delivers the segment, as any NIC would.
 */
#include <rdma/ib_verbs.h>
#include "softnic.h"

enum {
	SNIC_FRAGMENT_REACH_BYTES = 65535,	/* what a first fragment may become */
	SNIC_WINDOW_MAX = 65535,
};

/* One segment of a flow with a QP. */
struct snic_segment {
	struct snic_nic *nic;
	struct snic_qp *qp;
	const struct snic_packet *packet;
	u32 seq, end;
	bool has_option;
	struct tcp_bth bth;
};

static bool snic_is_write(const struct tcp_bth *bth)
{
	return tcp_bth_is_write(bth->opcode);
}

/* Where the last message begins that the segment has some of. */
static u32 snic_last_start(const struct snic_segment *s)
{
	const struct tcp_bth *b = &s->bth;

	if (!tcp_bth_is_even_train(b->opcode))
		return b->start_seq;
	return b->start_seq + (b->mbo + s->packet->bytes - 1) / b->length * b->length;
}

/* ---- where it goes ---- */

static enum snic_stat snic_add(struct snic_segment *s, u32 key, int access, u64 start, u64 length,
			       u64 offset, u64 bytes)
{
	struct snic_target *target = &s->nic->target;
	const struct snic_mr *mr = xa_load(&s->nic->mrs, key);

	if (!mr)
		return SNIC_S_deliver_key;
	if (mr->pd != s->qp->pd || (mr->access & access) != access)
		return SNIC_S_deliver_access;
	/* the whole of [start, start + length), and no sum that could wrap */
	if (start < mr->iova || start - mr->iova > mr->bytes ||
	    length > mr->bytes - (start - mr->iova) || target->count == SNIC_PIECES_MAX)
		return SNIC_S_deliver_bounds;
	target->piece[target->count++] = (struct snic_piece){ mr, start + offset, bytes };
	return SNIC_S_placed;
}

/* @bytes of message @msn from its byte @offset on go to the receive that was posted for it. */
static enum snic_stat snic_to_receive(struct snic_segment *s, u16 msn, u32 offset, u32 bytes)
{
	enum snic_stat verdict;
	struct snic_wqe wqe;
	u32 i;

	if (!snic_rq_posted(s->qp, msn))
		return SNIC_S_deliver_no_receive;
	if (!snic_rq_read(s->qp, msn, &wqe))
		return SNIC_S_deliver_bounds;
	for (i = 0; i < wqe.num_sge && bytes; i++) {
		u32 n;

		if (offset >= wqe.sge[i].length) {
			offset -= wqe.sge[i].length;
			continue;
		}
		n = min(wqe.sge[i].length - offset, bytes);
		if (wqe.sge[i].addr + offset < offset)
			return SNIC_S_deliver_bounds;
		verdict = snic_add(s, wqe.sge[i].lkey, IB_ACCESS_LOCAL_WRITE,
				   wqe.sge[i].addr + offset, n, 0, n);
		if (verdict != SNIC_S_placed)
			return verdict;
		offset = 0;
		bytes -= n;
	}
	return bytes ? SNIC_S_deliver_bounds : SNIC_S_placed;
}

static enum snic_stat snic_to_receives(struct snic_segment *s)
{
	u32 left = s->packet->bytes, offset = s->bth.mbo, each = s->bth.length;
	enum snic_stat verdict = SNIC_S_placed;
	u16 msn = s->bth.msn;

	if (s->bth.opcode != TCP_BTH_OP_SEND_TRAIN)
		return snic_to_receive(s, msn, offset, left);
	/* all of the train's messages in this segment, or none */
	for (msn += offset / each, offset %= each; left && verdict == SNIC_S_placed; msn++) {
		u32 n = min(each - offset, left);

		verdict = snic_to_receive(s, msn, offset, n);
		left -= n;
		offset = 0;
	}
	return verdict;
}

/* All of the train's WRITEs in this segment, or none; a hole in one is before the others. */
static enum snic_stat snic_write_train(struct snic_segment *s)
{
	u32 left = s->packet->bytes, each = s->bth.length, step = tcp_bth_train_step(s->bth.dma_length);
	u32 place = s->bth.mbo / each, offset = s->bth.mbo % each;
	enum snic_stat verdict = SNIC_S_placed;

	if (!(s->qp->flags & TQP_OFFLOAD_QP_REMOTE_WRITE))
		return SNIC_S_deliver_access;
	if (after(s->seq, s->qp->seen.mark) || !snic_order_allows(&s->qp->order))
		return SNIC_S_deliver_order;
	for (; left && verdict == SNIC_S_placed; place++) {
		u32 n = min(each - offset, left);

		verdict = snic_add(s, s->bth.rkey, IB_ACCESS_REMOTE_WRITE,
				   s->bth.va + (u64)place * step * each, each, offset, n);
		left -= n;
		offset = 0;
	}
	return verdict;
}

/* WRITEs and READ responses say themselves where they go. */
static enum snic_stat snic_to_memory(struct snic_segment *s)
{
	const struct tcp_bth *b = &s->bth;
	/* an immediate has the place of the length: ver 1 says it again, ver 0's last segment ends it */
	bool says_length = tcp_bth_op(b->opcode)->ext != TCP_BTH_EXT_RETH_IMM;
	u64 end = (u64)b->mbo + s->packet->bytes;
	u64 length = says_length ? b->dma_length : b->ver == 1 ? b->length : end;
	int access = IB_ACCESS_LOCAL_WRITE;

	if (tcp_bth_is_train(b->opcode))
		return snic_write_train(s);
	if (end > length || (b->ver == 1 && says_length && b->length != length))
		return SNIC_S_deliver_bounds;
	if (snic_is_write(b)) {
		if (!(s->qp->flags & TQP_OFFLOAD_QP_REMOTE_WRITE))
			return SNIC_S_deliver_access;
		if (after(b->start_seq, s->qp->seen.mark) || !snic_order_allows(&s->qp->order))
			return SNIC_S_deliver_order;
		access = IB_ACCESS_REMOTE_WRITE;
	} else if (!snic_read_waits(s->qp, b->msn, b->va, b->rkey, b->dma_length)) {
		return SNIC_S_deliver_no_read;
	}
	return snic_add(s, b->rkey, access, b->va, length, b->mbo, s->packet->bytes);
}

/* ---- may it go there ---- */

/* A message has one start.  One that claims the number of a message before it is a lie. */
static bool snic_start_agrees(struct snic_start *starts, u16 msn, u32 start)
{
	struct snic_start *e = &starts[msn % SNIC_STARTS];

	if (e->used && e->msn == msn)
		return e->start == start;
	if (e->used && !((s16)(msn - e->msn) > 0 && after(start, e->start)))
		return false;
	*e = (struct snic_start){ .used = true, .msn = msn, .start = start };
	return true;
}

static bool snic_agrees(struct snic_segment *s)
{
	const struct tcp_bth *b = &s->bth;
	u32 first, last, i;

	if (snic_is_write(b))	/* its numbers are not one space: it may go where the peer may write */
		return true;
	if (!tcp_bth_is_send(b->opcode))
		return snic_start_agrees(s->qp->responses, b->msn, b->start_seq);
	if (b->opcode != TCP_BTH_OP_SEND_TRAIN)
		return snic_start_agrees(s->qp->sends, b->msn, b->start_seq);
	first = b->mbo / b->length;
	last = (b->mbo + s->packet->bytes - 1) / b->length;
	for (i = first; i <= last; i++)
		if (!snic_start_agrees(s->qp->sends, b->msn + i, b->start_seq + i * b->length))
			return false;
	return true;
}

/*
 * Segments may have passed while the context was made.  Peers send QP bytes only
 * after our rtr, which comes later, so from message 0 on none was missed.
 */
static bool snic_sync(struct snic_segment *s)
{
	struct snic_qp *qp = s->qp;

	if (qp->synced)
		return true;
	if (s->bth.msn || after(s->bth.start_seq, s->seq))
		return false;
	if (after(s->bth.start_seq, qp->seen.mark))
		snic_order_delivered(&qp->order, s->bth.start_seq);
	snic_seen_raise(&qp->seen, s->bth.start_seq);
	qp->synced = true;
	return true;
}

static bool snic_ack_plausible(const struct snic_qp *qp, const struct snic_packet *packet)
{
	return packet->th->ack && qp->sent_known &&
	       qp->sent - packet->ack <= qp->sent - qp->acked + SNIC_ACK_BEHIND_MAX_BYTES;
}

static bool snic_in_window(const struct snic_segment *s)
{
	return !after(s->seq, s->qp->right_edge) && s->packet->bytes <= s->qp->right_edge - s->seq;
}

static bool snic_placeable(const struct tcp_bth *b)
{
	if (b->ver == 1 && !b->length)	/* an empty message's one byte belongs to no buffer */
		return false;
	if (tcp_bth_is_mixed_train(b->opcode))
		return false;	/* its tables are not remembered here */
	return tcp_bth_is_send(b->opcode) ||
	       (tcp_bth_is_tagged(b->opcode) && b->ext_bytes == TCP_BTH_RETH_BYTES);
}

static enum snic_stat snic_check(struct snic_segment *s)
{
	const struct snic_packet *packet = s->packet;
	const struct tcphdr *th = packet->th;
	struct snic_qp *qp = s->qp;
	bool agrees;

	if (th->syn || th->fin || th->rst || th->urg)
		return SNIC_S_deliver_flags;
	if (s->seq == qp->seen.mark && snic_ack_plausible(qp, packet))
		qp->synced = true;
	s->has_option = tcp_bth_find(packet->options, packet->option_bytes, s->seq, packet->bytes,
				     &s->bth, NULL) == TCP_BTH_OK;
	if (!s->has_option)	/* nobody can tell whose bytes these are */
		return snic_order_overtaken(&qp->order, s->end) ? SNIC_S_drop_overtaken :
								  SNIC_S_deliver_no_option;
	if (!snic_in_window(s))
		return SNIC_S_deliver_window;
	if (snic_seen_overlaps(&qp->seen, s->seq, s->end))
		return snic_placeable(&s->bth) && snic_is_write(&s->bth) &&
		       snic_order_overtaken(&qp->order, s->end) ? SNIC_S_placed_before :
								   SNIC_S_deliver_seen;
	if (!snic_ack_plausible(qp, packet))
		return SNIC_S_deliver_ack;
	if (s->bth.flags & TCP_BTH_F_ICRC)
		return SNIC_S_deliver_icrc;	/* the kernel checks it */
	agrees = !snic_placeable(&s->bth) || snic_agrees(s);
	if (!snic_sync(s))
		return SNIC_S_deliver_unsynced;
	if (qp->seen.resyncing)
		return SNIC_S_deliver_disorder;
	if (!snic_placeable(&s->bth))
		return SNIC_S_deliver_kind;
	if (!agrees)
		return SNIC_S_deliver_start;
	s->nic->target.count = 0;
	return tcp_bth_is_send(s->bth.opcode) ? snic_to_receives(s) : snic_to_memory(s);
}

/* ---- what is remembered of it ---- */

/* What TCP can't take, whatever window it has advertised by now, needs no memory. */
static bool snic_plausible(const struct snic_qp *qp, u32 seq)
{
	return before(seq, qp->seen.mark) ||
	       seq - qp->seen.mark <= (u32)SNIC_WINDOW_MAX << qp->wscale;
}

static void snic_remember(struct snic_segment *s, enum snic_stat verdict)
{
	struct snic_qp *qp = s->qp;

	snic_seen_record(&qp->seen, s->seq, s->end);
	if (before(qp->right_edge, qp->seen.mark))
		qp->right_edge = qp->seen.mark;
	if (verdict == SNIC_S_placed && snic_is_write(&s->bth))
		snic_order_written(&qp->order, snic_last_start(s));
	else if (verdict != SNIC_S_placed && verdict != SNIC_S_placed_before)
		snic_order_delivered(&qp->order, s->end);
}

enum snic_stat snic_place(struct snic_nic *nic, const struct snic_packet *packet)
{
	struct snic_segment s = {
		.nic = nic,
		.packet = packet,
		.seq = packet->seq,
		.end = packet->seq + packet->bytes,
	};
	enum snic_stat verdict;

	lockdep_assert_held(&nic->lock);
	s.qp = snic_qp_of(nic, &packet->flow);
	if (!s.qp)
		return SNIC_S_deliver_no_qp;
	if (packet->fragment) {
		if (snic_plausible(s.qp, s.seq))
			snic_seen_distrust(&s.qp->seen, s.seq + SNIC_FRAGMENT_REACH_BYTES);
		return SNIC_S_deliver_fragment;
	}
	if (!packet->checksum_good)
		return SNIC_S_deliver_checksum;		/* TCP drops it */
	if (packet->bytes) {
		snic_order_settle(&s.qp->order, s.qp);
		verdict = snic_check(&s);
		if (verdict == SNIC_S_placed) {
			snic_fill(&nic->target, packet->payload);
			snic_count(nic, SNIC_S_placed_bytes, packet->bytes);
		}
	} else {
		verdict = SNIC_S_deliver_no_payload;
	}
	if (snic_ack_plausible(s.qp, packet) && after(packet->ack, s.qp->acked))
		s.qp->acked = packet->ack;
	if (packet->bytes && verdict != SNIC_S_drop_overtaken && !packet->th->syn &&
	    !packet->th->rst && snic_plausible(s.qp, s.seq))
		snic_remember(&s, verdict);
	return verdict;
}

void snic_watch(struct snic_nic *nic, const struct snic_packet *packet)
{
	const struct tqp_offload_flow flow = snic_flow_reversed(&packet->flow);
	u32 end = packet->seq + packet->bytes + packet->th->fin, right;
	struct snic_qp *qp;

	lockdep_assert_held(&nic->lock);
	qp = snic_qp_of(nic, &flow);
	if (!qp || packet->fragment || packet->th->syn || packet->th->rst || !packet->th->ack)
		return;
	if (!qp->sent_known) {
		qp->sent = end;
		qp->acked = end;
	} else if (after(end, qp->sent)) {
		qp->sent = end;
	}
	qp->sent_known = true;
	snic_seen_raise(&qp->seen, packet->ack);
	right = packet->ack + ((u32)packet->window << qp->wscale);
	if (after(right, qp->right_edge))
		qp->right_edge = right;
}
