// SPDX-License-Identifier: GPL-2.0
/* Receive WQEs: taken for the message that is being received, and completed. */
#include "conn.h"
#include "trace.h"

/* The ring is read by libibverbs, whose IBV_WC_WITH_INV is not the kernel's IB_WC_WITH_INVALIDATE. */
#define TQP_USER_WC_WITH_INV (1 << 3)

/* The one copy of a receive WQE; @to: struct tqp_rx_cur */
static void tqp_rx_copy_wqe(const struct rxe_recv_wqe *wqe, u32 max_sge, void *to)
{
	struct tqp_rx_cur *rx = to;

	rx->wr_id = READ_ONCE(wqe->wr_id);
	rx->nr_sge = min3(READ_ONCE(wqe->dma.num_sge), max_sge, (u32)TQP_SGE_MAX);
	rx->room = 0;
	for (u32 i = 0; i < rx->nr_sge; i++) {
		rx->sges[i].addr = READ_ONCE(wqe->dma.sge[i].addr);
		rx->sges[i].length = READ_ONCE(wqe->dma.sge[i].length);
		rx->sges[i].lkey = READ_ONCE(wqe->dma.sge[i].lkey);
		rx->room += rx->sges[i].length;
	}
}

bool tqp_rx_take_wqe(struct tqp_conn *conn)
{
	struct tqp_rx_cur *rx = &conn->rx;
	struct tqp_qp *qp = conn->qp;

	if (rx->have_wqe)
		return true;
	if (qp->srq) {
		rx->have_wqe = tqp_srq_take(qp->srq, tqp_rx_copy_wqe, rx);
	} else if (tqp_ring_posted(qp->rq, qp->rq->index)) {
		tqp_rx_copy_wqe(tqp_ring_entry(qp->rq, qp->rq->index), qp->cap.max_recv_sge, rx);
		rx->have_wqe = true;
	}
	return rx->have_wqe;
}

void tqp_rx_flush(struct tqp_conn *conn)
{
	struct tqp_rx_cur *rx = &conn->rx;
	struct ib_uverbs_wc wc = {
		.wr_id = rx->wr_id,
		.status = IB_WC_WR_FLUSH_ERR,
		.opcode = IB_WC_RECV,
		.qp_num = conn->qpn,
	};

	if (conn->qp->srq && rx->have_wqe)
		tqp_cq_post(conn->qp->rcq, &wc, true);
	rx->have_wqe = false;
}

/* The receive is done with, and is the application's once the CQE is there. */
static void tqp_rx_used(struct tqp_conn *conn, struct ib_uverbs_wc *wc, bool solicited)
{
	struct tqp_qp *qp = conn->qp;

	/* the switch must see the slot as used before the application can post it again */
	if (conn->shadow)
		WRITE_ONCE(conn->shadow->completed,
			   cpu_to_le32(le32_to_cpu(conn->shadow->completed) + 1));
	if (qp->rq)		/* the SRQ's was taken */
		tqp_ring_consume(qp->rq);
	tqp_cq_post(qp->rcq, wc, solicited);
	conn->rx.have_wqe = false;
}

void tqp_rx_complete(struct tqp_conn *conn, enum ib_wc_status status)
{
	struct tqp_rx_cur *rx = &conn->rx;
	const struct tqp_rx_msg *msg = &rx->msg;
	struct ib_uverbs_wc wc = {
		.wr_id = rx->wr_id,
		.status = status,
		.opcode = msg->kind == TQP_MSG_WRITE ? IB_WC_RECV_RDMA_WITH_IMM : IB_WC_RECV,
		.byte_len = msg->done,
		.qp_num = conn->qpn,
		.src_qp = conn->qpn,
		.port_num = 1,
	};

	if (msg->opcode_known && (msg->opcode == TCP_BTH_OP_SEND_ONLY_IMM ||
				  msg->opcode == TCP_BTH_OP_WRITE_ONLY_IMM)) {
		wc.ex.imm_data = htonl(msg->ext4);
		wc.wc_flags = IB_WC_WITH_IMM;
	} else if (msg->opcode_known && msg->opcode == TCP_BTH_OP_SEND_ONLY_INV) {
		wc.ex.invalidate_rkey = msg->ext4;
		wc.wc_flags = TQP_USER_WC_WITH_INV;
	}
	tqp_rx_used(conn, &wc, msg->opcode_known && msg->solicited);
	conn->info.rx_messages++;
}

/* Its number and place in the stream are those of the train's next message? */
static bool tqp_rx_train_next(const struct tqp_conn *conn, u32 seq)
{
	const struct tqp_skb_map *all = &conn->rx.train.all;
	u32 at = seq - all->start_seq;

	return conn->rx_started && !conn->rx.msg.active && tqp_in_train(&conn->rx.train, seq) &&
	       at % all->length == 0 &&
	       (u16)(all->msn + at / all->length) == conn->rx_next.untagged;
}

static bool tqp_rx_train_one(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq)
{
	u32 length = conn->rx.train.all.length;
	struct ib_uverbs_wc wc = {
		.status = IB_WC_SUCCESS,
		.opcode = IB_WC_RECV,
		.byte_len = length,
		.qp_num = conn->qpn,
		.src_qp = conn->qpn,
		.port_num = 1,
	};

	if (!tqp_rx_take_wqe(conn) || length > conn->rx.room ||
	    (!skb->decrypted && tqp_place_copy(conn, skb, off, 0, length)))
		return false;
	wc.wr_id = conn->rx.wr_id;
	trace_tqp_rx_message(conn->qpn, conn->rx_next.untagged, TCP_BTH_OP_SEND_ONLY, seq,
			     length);
	tqp_rx_used(conn, &wc, conn->rx.train.all.flags & TQP_MAP_SOLICITED);
	conn->rx_next.untagged++;
	return true;
}

u32 tqp_rx_train(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq)
{
	const struct tqp_skb_map *all = &conn->rx.train.all;
	u32 left, done = 0;

	if (!tqp_rx_train_next(conn, seq))
		return 0;
	left = min(skb->len - off, all->ext4 - (seq - all->start_seq));
	while (left - done >= all->length && tqp_rx_train_one(conn, skb, off + done, seq + done))
		done += all->length;
	conn->info.rx_messages += done / all->length;
	tqp_count(conn->dev, TQP_C_rx_messages, done / all->length);
	return done;
}
