// SPDX-License-Identifier: GPL-2.0
/* Receive WQEs: taken for the message that is being received, and completed. */
#include "memory/memory.h"
#include "object/trace.h"
#include "rx/rx.h"

/* Of a train's messages: their CQEs are on the stack until they are posted together. */
#define TQP_RX_CQES_AT_ONCE 32

/* The ring is read by libibverbs, whose IBV_WC_WITH_INV is not the kernel's IB_WC_WITH_INVALIDATE. */
#define TQP_USER_WC_WITH_INV (1 << 3)

/* @to: struct tqp_rx_wqe */
static inline bool tqp_rx_copy_wqe(const struct rxe_recv_wqe *wqe, u32 max_sge, void *to)
{
	tqp_rx_wqe_copy(to, wqe, max_sge);
	return true;
}

/* How many receives could be taken now? */
static u32 tqp_rx_receives(const struct tqp_conn *conn)
{
	const struct tqp_ring *rq = conn->qp->rq;

	return conn->qp->srq ? U32_MAX : tqp_ring_posted(rq, rq->index);
}

/* The WQE behind @used ones that are ours still; there is one, but of an SRQ. */
static bool tqp_rx_load_wqe(struct tqp_conn *conn, u32 used)
{
	struct tqp_rx *rx = &conn->rx;
	struct tqp_qp *qp = conn->qp;

	if (rx->wqe.valid)
		return true;
	if (qp->srq) {
		rx->wqe.valid = tqp_srq_take(qp->srq, tqp_rx_copy_wqe, &rx->wqe);
		return rx->wqe.valid;
	}
	tqp_rx_wqe_copy(&rx->wqe, tqp_ring_entry(qp->rq, qp->rq->index + used),
			qp->cap.max_recv_sge);
	rx->wqe.valid = true;
	return true;
}

bool tqp_rx_take_wqe(struct tqp_conn *conn)
{
	return conn->rx.wqe.valid || (tqp_rx_receives(conn) && tqp_rx_load_wqe(conn, 0));
}

void tqp_rx_flush(struct tqp_conn *conn)
{
	struct tqp_rx *rx = &conn->rx;
	struct ib_uverbs_wc wc = {
		.wr_id = rx->wqe.wr_id,
		.status = IB_WC_WR_FLUSH_ERR,
		.opcode = IB_WC_RECV,
		.qp_num = conn->qpn,
	};

	if (rx->wqe.failed)
		tqp_rx_complete(conn, rx->wqe.failed);
	else if (conn->qp->srq && rx->wqe.valid)
		tqp_cq_post(conn->qp->rcq, &wc, true);
	rx->wqe.valid = false;
}

/*
 * @count receives are done with, and are the application's once the CQEs are
 * there: each @wc but for its wr_id, and its length if there are @lengths.
 */
static void tqp_rx_used(struct tqp_conn *conn, const struct ib_uverbs_wc *wc, const u64 *wr_ids,
			const u32 *lengths, u32 count, bool solicited)
{
	struct tqp_qp *qp = conn->qp;

	/* the switch must see the slots as used before the application can post them again */
	if (conn->offload.shadow)
		WRITE_ONCE(conn->offload.shadow->completed,
			   cpu_to_le32(le32_to_cpu(conn->offload.shadow->completed) + count));
	if (qp->rq)		/* the SRQ's were taken */
		tqp_ring_consume_all(qp->rq, count);
	tqp_cq_came_from(qp->rcq, conn->sk);
	tqp_cq_post_all(qp->rcq, wc, wr_ids, lengths, count, solicited);
}

void tqp_rx_complete(struct tqp_conn *conn, enum ib_wc_status status)
{
	struct tqp_rx *rx = &conn->rx;
	const struct tqp_rx_msg *msg = &rx->msg;
	struct ib_uverbs_wc wc = {
		.wr_id = rx->wqe.wr_id,
		.status = status,
		.opcode = msg->kind == TCP_BTH_KIND_WRITE ? IB_WC_RECV_RDMA_WITH_IMM : IB_WC_RECV,
		.byte_len = msg->done,
		.qp_num = conn->qpn,
		.src_qp = conn->qpn,
		.port_num = 1,
	};

	if (msg->opcode_known && tcp_bth_has_immediate(msg->opcode)) {
		wc.ex.imm_data = htonl(msg->ext4);
		wc.wc_flags = IB_WC_WITH_IMM;
	} else if (msg->opcode_known && tcp_bth_op(msg->opcode)->ext == TCP_BTH_EXT_IETH) {
		wc.ex.invalidate_rkey = msg->ext4;
		wc.wc_flags = TQP_USER_WC_WITH_INV;
	}
	tqp_rx_used(conn, &wc, &wc.wr_id, NULL, 1, msg->opcode_known && msg->solicited);
	rx->wqe.valid = false;
	conn->counters.rx_messages++;
}

/* Its number and place in the stream are those of the train's next message? */
static bool tqp_rx_train_next(const struct tqp_conn *conn, u32 seq)
{
	const struct tqp_skb_map *all = &conn->rx.train.all;
	u32 at = seq - all->start_seq;

	return all->opcode == TCP_BTH_OP_SEND_TRAIN && conn->rx.started && !conn->rx.msg.active && tqp_in_train(&conn->rx.train, seq) &&
	       at % all->length == 0 &&
	       (u16)(all->msn + at / all->length) == conn->rx.next.untagged;
}

/* A whole message of a train's to its receive, the one behind @used. */
static bool tqp_rx_train_one(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 length, u32 used)
{
	return tqp_rx_load_wqe(conn, used) && length <= conn->rx.wqe.room &&
	       (skb->decrypted || !tqp_place_copy(conn, skb, off, 0, length));
}

/* Up to @count of the train's messages, their CQEs posted together; how many. */
static u32 tqp_rx_train_some(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq,
			     u32 count)
{
	u32 length = conn->rx.train.all.length, n = 0;
	struct ib_uverbs_wc wc = {
		.status = IB_WC_SUCCESS,
		.opcode = IB_WC_RECV,
		.byte_len = length,
		.qp_num = conn->qpn,
		.src_qp = conn->qpn,
		.port_num = 1,
	};
	u64 wr_ids[TQP_RX_CQES_AT_ONCE];

	count = min3(count, tqp_rx_receives(conn), (u32)TQP_RX_CQES_AT_ONCE);
	for (; n < count && tqp_rx_train_one(conn, skb, off + n * length, length, n); n++) {
		trace_tqp_rx_message(conn->qpn, conn->rx.next.untagged, TCP_BTH_OP_SEND_ONLY,
				     seq + n * length, length);
		wr_ids[n] = conn->rx.wqe.wr_id;
		conn->rx.wqe.valid = false;
		conn->rx.next.untagged++;
	}
	if (n)
		tqp_rx_used(conn, &wc, wr_ids, NULL, n, conn->rx.train.all.flags & TQP_MAP_SOLICITED);
	return n;
}

u32 tqp_rx_train(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq)
{
	const struct tqp_skb_map *all = &conn->rx.train.all;
	u32 count, n, done = 0;

	if (!tqp_rx_train_next(conn, seq))
		return 0;
	count = min(skb->len - off, conn->rx.train.bytes - (seq - all->start_seq)) / all->length;
	do {
		n = tqp_rx_train_some(conn, skb, off + done * all->length,
				      seq + done * all->length, count - done);
		done += n;
	} while (n);
	conn->counters.rx_messages += done;
	tqp_count(conn->dev, TQP_C_rx_messages, done);
	return done * all->length;
}

/* ---- the same of a mixed train ---- */

/* The next message of it begins at @seq, is the next one, and is all in @left bytes: its length, else 0. */
static u32 tqp_rx_mixed_next(struct tqp_conn *conn, u32 seq, u32 left)
{
	struct tqp_rx_mixed *mixed = &conn->rx.train.mixed;
	u32 length;

	if (!tqp_mixed_has(mixed, seq) || mixed->writes)
		return 0;
	length = tqp_mixed_go(mixed, seq);
	return seq == mixed->at_seq && length <= left &&
	       (u16)(mixed->msn + mixed->at) == conn->rx.next.untagged ? length : 0;
}

/* As many of its messages as have receives, their CQEs posted together: bytes taken. */
static u32 tqp_rx_mixed_some(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq, u32 *count)
{
	u32 most = min_t(u32, tqp_rx_receives(conn), TQP_RX_CQES_AT_ONCE), taken = 0, n = 0;
	const struct tqp_rx_mixed *mixed = &conn->rx.train.mixed;
	u32 lengths[TQP_RX_CQES_AT_ONCE];
	u64 wr_ids[TQP_RX_CQES_AT_ONCE];
	struct ib_uverbs_wc wc = {
		.status = IB_WC_SUCCESS,
		.opcode = IB_WC_RECV,
		.qp_num = conn->qpn,
		.src_qp = conn->qpn,
		.port_num = 1,
	};
	bool solicited = false;

	for (; n < most; n++) {
		u32 length = tqp_rx_mixed_next(conn, seq + taken, skb->len - off - taken);

		if (!length || !tqp_rx_train_one(conn, skb, off + taken, length, n))
			break;
		trace_tqp_rx_message(conn->qpn, conn->rx.next.untagged, TCP_BTH_OP_SEND_ONLY,
				     seq + taken, length);
		solicited |= !!(mixed->entries[mixed->at] & TCP_BTH_LENGTHS_SOLICITED);
		wr_ids[n] = conn->rx.wqe.wr_id;
		lengths[n] = length;
		conn->rx.wqe.valid = false;
		conn->rx.next.untagged++;
		taken += length;
	}
	if (n)
		tqp_rx_used(conn, &wc, wr_ids, lengths, n, solicited);
	*count += n;
	return taken;
}

u32 tqp_rx_mixed(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq)
{
	u32 bytes, done = 0, count = 0;

	if (conn->rx.msg.active)
		return 0;
	do {
		bytes = tqp_rx_mixed_some(conn, skb, off + done, seq + done, &count);
		done += bytes;
	} while (bytes);
	conn->counters.rx_messages += count;
	tqp_count(conn->dev, TQP_C_rx_messages, count);
	return done;
}
