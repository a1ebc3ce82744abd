// SPDX-License-Identifier: GPL-2.0
/*
 * Send queue to UDP: each WQE is copied once and checked, its payload gathered behind the
 * datagram's head, and all of it copied by the stack.  So a send is complete when it has
 * left for the stack, and its memory is the application's again.
 *
 * A full socket buffer stops the queue; the stack says when there is room, and the work
 * goes on.  What the stack refuses otherwise (no route, no memory, an address that is not
 * this host's any more) is lost on the way, as UD may be, and counted.
 */
#include <linux/net.h>
#include <net/sock.h>
#include <rdma/ib_mad.h>
#include "memory/memory.h"
#include "ud/ud.h"

/* ---- the WQE ---- */

static void tqp_ud_copy_wqe(struct tqp_ud_wqe *wqe, const struct rxe_send_wqe *from)
{
	wqe->wr_id = READ_ONCE(from->wr.wr_id);
	wqe->opcode = READ_ONCE(from->wr.opcode);
	wqe->flags = READ_ONCE(from->wr.send_flags);
	wqe->imm = ntohl(READ_ONCE(from->wr.ex.imm_data));
	wqe->qpn = READ_ONCE(from->wr.wr.ud.remote_qpn);
	wqe->qkey = READ_ONCE(from->wr.wr.ud.remote_qkey);
	wqe->ah = READ_ONCE(from->wr.wr.ud.ah_num);
	wqe->bytes = READ_ONCE(from->dma.length);	/* of inline data; else summed below */
	wqe->nr_sge = READ_ONCE(from->dma.num_sge);
}

static enum ib_wc_status tqp_ud_copy_sges(const struct tqp_qp *qp, struct tqp_ud_wqe *wqe,
					  const struct rxe_send_wqe *from)
{
	u64 bytes = 0;

	if (wqe->nr_sge > qp->cap.max_send_sge || wqe->nr_sge > TQP_SGE_MAX)
		return IB_WC_LOC_QP_OP_ERR;
	for (u32 i = 0; i < wqe->nr_sge; i++) {
		wqe->sges[i].addr = READ_ONCE(from->dma.sge[i].addr);
		wqe->sges[i].length = READ_ONCE(from->dma.sge[i].length);
		wqe->sges[i].lkey = READ_ONCE(from->dma.sge[i].lkey);
		bytes += wqe->sges[i].length;
	}
	wqe->bytes = min_t(u64, bytes, U32_MAX);
	return IB_WC_SUCCESS;
}

static u32 tqp_ud_bytes_max(const struct tqp_qp *qp, const struct tqp_ud_wqe *wqe)
{
	u32 mtu = ib_mtu_enum_to_int(tqp_ud_mtu(qp->dev));

	if (!(wqe->flags & IB_SEND_INLINE))
		return mtu;
	return min3(mtu, qp->cap.max_inline_data, (u32)TQP_INLINE_MAX_BYTES);
}

static enum ib_wc_status tqp_ud_load_wqe(struct tqp_qp *qp, const struct rxe_send_wqe *from)
{
	struct tqp_ud_wqe *wqe = &qp->ud->wqe;
	enum ib_wc_status status;

	tqp_ud_copy_wqe(wqe, from);
	if (wqe->opcode != IB_WR_SEND && wqe->opcode != IB_WR_SEND_WITH_IMM)
		return IB_WC_LOC_QP_OP_ERR;
	if (!(wqe->flags & IB_SEND_INLINE)) {
		status = tqp_ud_copy_sges(qp, wqe, from);
		if (status)
			return status;
	}
	if (wqe->bytes > tqp_ud_bytes_max(qp, wqe))
		return IB_WC_LOC_LEN_ERR;
	if (wqe->qpn > TQP_UD_QPN_MAX || !tqp_ah_route(qp->pd, wqe->ah, &qp->ud->route))
		return IB_WC_LOC_QP_OP_ERR;
	return IB_WC_SUCCESS;
}

/* ---- the datagram ---- */

static enum ib_wc_status tqp_ud_gather(struct tqp_qp *qp, const struct rxe_send_wqe *from)
{
	struct tqp_ud_wqe *wqe = &qp->ud->wqe;
	u8 *to = qp->ud->datagram + TQP_UD_HEAD_BYTES;

	if (wqe->flags & IB_SEND_INLINE) {
		memcpy(to, from->dma.inline_data, wqe->bytes);
		return IB_WC_SUCCESS;
	}
	for (u32 i = 0; i < wqe->nr_sge; to += wqe->sges[i].length, i++)
		if (!tqp_mr_copy_from(qp->dev, qp->pd->pdn, &wqe->sges[i], to))
			return IB_WC_LOC_PROT_ERR;
	return IB_WC_SUCCESS;
}

static void tqp_ud_head_of(struct tqp_qp *qp)
{
	const struct tqp_ud_wqe *wqe = &qp->ud->wqe;
	bool imm = wqe->opcode == IB_WR_SEND_WITH_IMM;
	struct tqp_ud_head head = {
		.opcode = imm ? TQP_UD_SEND_IMM : TQP_UD_SEND,
		.flags = wqe->flags & IB_SEND_SOLICITED ? TQP_UD_F_SOLICITED : 0,
		.bytes = wqe->bytes,
		.dest_qpn = wqe->qpn,
		.src_qpn = qp->qpn,
		/* IBTA 10.2.5: the highest bit asks for the QP's own */
		.qkey = wqe->qkey & IB_QP_SET_QKEY ? qp->attr.qkey : wqe->qkey,
		.imm = imm ? wqe->imm : 0,
	};

	tqp_ud_build(qp->ud->datagram, &head);
}

static int tqp_ud_sendmsg(struct tqp_ud *ud)
{
	struct kvec kv = { ud->datagram, TQP_UD_HEAD_BYTES + ud->wqe.bytes };
	struct msghdr msg = {
		.msg_name = &ud->route.to,
		.msg_namelen = ud->route.to_bytes,
		.msg_control = ud->route.control,
		.msg_controllen = ud->route.control_bytes,
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};

	return kernel_sendmsg(ud->sock, &msg, &kv, 1, kv.iov_len);
}

/* False: the socket's buffer is full, and the work will be queued when it is not. */
static bool tqp_ud_transmit(struct tqp_qp *qp)
{
	struct tqp_ud *ud = qp->ud;
	int ret = tqp_ud_sendmsg(ud);

	if (ret == -EAGAIN) {
		WRITE_ONCE(ud->blocked, true);
		smp_mb();	/* pairs with tqp_ud_write_space(): it sees that, or we see room */
		if (!sock_writeable(ud->sock->sk))
			return false;
		ret = tqp_ud_sendmsg(ud);
		if (ret == -EAGAIN)
			return false;
	}
	if (ret < 0) {
		tqp_count(qp->dev, TQP_C_ud_tx_dropped, 1);
		return true;
	}
	tqp_count(qp->dev, TQP_C_ud_tx_messages, 1);
	return true;
}

/* ---- the queue ---- */

static void tqp_ud_sent(struct tqp_qp *qp, enum ib_wc_status status)
{
	const struct tqp_ud_wqe *wqe = &qp->ud->wqe;
	struct ib_uverbs_wc wc = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = tqp_wc_opcode(wqe->opcode),
		.byte_len = wqe->bytes,
		.qp_num = qp->qpn,
	};

	tqp_ring_consume(qp->sq);
	if (status || qp->sq_sig_all || wqe->flags & IB_SEND_SIGNALED)
		tqp_cq_post(qp->scq, &wc, false);
}

/* -EAGAIN, or what the WQE completes with. */
static int tqp_ud_send_one(struct tqp_qp *qp)
{
	const struct rxe_send_wqe *from = tqp_ring_entry(qp->sq, qp->sq->index);
	enum ib_wc_status status = tqp_ud_load_wqe(qp, from);

	if (!status)
		status = tqp_ud_gather(qp, from);
	if (status)
		return status;
	tqp_ud_head_of(qp);
	return tqp_ud_transmit(qp) ? IB_WC_SUCCESS : -EAGAIN;
}

/* IBTA 10.3.1: only the send queue is in error then, and modify_qp brings it back. */
static void tqp_ud_send_error(struct tqp_qp *qp, enum ib_wc_status status)
{
	spin_lock_bh(&qp->lock);
	if (qp->state == IB_QPS_RTS)
		WRITE_ONCE(qp->state, IB_QPS_SQE);
	spin_unlock_bh(&qp->lock);
	tqp_count(qp->dev, status == IB_WC_LOC_PROT_ERR ? TQP_C_tx_protection_errors :
							  TQP_C_wqe_invalid, 1);
	tqp_qp_flush_sends(qp);
}

/* How much was posted is read once, so user space can't keep us here. */
void tqp_ud_send(struct tqp_qp *qp)
{
	u32 left = tqp_ring_posted(qp->sq, qp->sq->index);
	int status;

	lockdep_assert_held(&qp->mutex);
	WRITE_ONCE(qp->ud->blocked, false);
	for (; left && tqp_qp_state(qp) == IB_QPS_RTS; left--) {
		status = tqp_ud_send_one(qp);
		if (status == -EAGAIN)
			return;
		tqp_ud_sent(qp, status);
		if (status)
			tqp_ud_send_error(qp, status);
		cond_resched();
	}
}
