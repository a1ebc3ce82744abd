// SPDX-License-Identifier: GPL-2.0
/*
 * Send queue to TCP: take WQEs in order, check them, log the message, hand
 * its pages to tcp_sendmsg_locked() without copying.
 */
#include <linux/bvec.h>
#include "conn.h"
#include "trace.h"

void tqp_tx_kick(struct tqp_conn *conn)
{
	tqp_conn_get(conn);
	if (!queue_work(tqp_wq, &conn->tx_work))
		tqp_conn_put(conn);
}

void tqp_tx_work(struct work_struct *work)
{
	struct tqp_conn *conn = container_of(work, struct tqp_conn, tx_work);

	lock_sock(conn->sk);
	tqp_tx_run(conn);
	release_sock(conn->sk);
	tqp_conn_put(conn);
}

/* ---- a WQE, copied once and checked ---- */

struct tqp_wqe_head {
	u64 wr_id;
	u32 opcode;
	u32 flags;
	__be32 imm;
	u32 num_sge;
	u32 inline_bytes;
};

static void tqp_wqe_copy_head(const struct rxe_send_wqe *wqe, struct tqp_wqe_head *head)
{
	head->wr_id = READ_ONCE(wqe->wr.wr_id);
	head->opcode = READ_ONCE(wqe->wr.opcode);
	head->flags = READ_ONCE(wqe->wr.send_flags);
	head->imm = READ_ONCE(wqe->wr.ex.imm_data);
	head->num_sge = READ_ONCE(wqe->dma.num_sge);
	head->inline_bytes = READ_ONCE(wqe->dma.length);
}

static bool tqp_send_opcode(u32 ib_opcode, u8 *bth_opcode)
{
	switch (ib_opcode) {
	case IB_WR_SEND:
		*bth_opcode = TCP_BTH_OP_SEND_ONLY;
		return true;
	case IB_WR_SEND_WITH_IMM:
		*bth_opcode = TCP_BTH_OP_SEND_ONLY_IMM;
		return true;
	default:
		return false;
	}
}

/* Pin the WQE's keys; the length is ours to sum, never taken from the WQE. */
static enum ib_wc_status tqp_load_sges(struct tqp_conn *conn, const struct rxe_send_wqe *wqe,
				       u32 num_sge, struct tqp_tx_msg *msg)
{
	struct tqp_tx_cur *cur = &conn->cur;
	u64 bytes = 0;

	if (num_sge > conn->qp->cap.max_send_sge || num_sge > TQP_SGE_MAX)
		return IB_WC_LOC_QP_OP_ERR;
	cur->nr_sge = 0;
	for (u32 i = 0; i < num_sge; i++) {
		struct ib_sge *sge = &cur->sges[cur->nr_sge];
		struct tqp_mr *mr;

		sge->addr = READ_ONCE(wqe->dma.sge[i].addr);
		sge->length = READ_ONCE(wqe->dma.sge[i].length);
		sge->lkey = READ_ONCE(wqe->dma.sge[i].lkey);
		if (!sge->length)
			continue;
		bytes += sge->length;
		if (bytes > TQP_MESSAGE_MAX_BYTES)
			return IB_WC_LOC_LEN_ERR;
		mr = tqp_mr_get(conn->dev, sge->lkey);
		if (!mr)
			return IB_WC_LOC_PROT_ERR;
		msg->mrs[msg->nr_mrs++] = mr;
		if (tqp_mr_check(mr, conn->qp->pd->pdn, sge->addr, sge->length, 0))
			return IB_WC_LOC_PROT_ERR;
		cur->nr_sge++;
	}
	cur->left = bytes;
	return IB_WC_SUCCESS;
}

static enum ib_wc_status tqp_load_inline(struct tqp_conn *conn, const struct rxe_send_wqe *wqe,
					 u32 bytes)
{
	if (bytes > conn->qp->cap.max_inline_data || bytes > TQP_INLINE_MAX_BYTES)
		return IB_WC_LOC_LEN_ERR;
	memcpy(conn->cur.data, wqe->dma.inline_data, bytes);
	conn->cur.left = bytes;
	return IB_WC_SUCCESS;
}

static void tqp_log_message(struct tqp_conn *conn, const struct tqp_wqe_head *head, u8 opcode)
{
	struct tqp_msg_rec *rec = tqp_msglog_next(&conn->log);

	/* the log has a record for every SQ entry */
	if (WARN_ON_ONCE(!rec)) {
		conn->tx_failed = true;
		return;
	}
	*rec = (struct tqp_msg_rec) {
		.start_seq = tcp_sk(conn->sk)->write_seq,
		.length = conn->cur.left,
		.msn = conn->tx_msn++,
		.opcode = opcode,
		.ext_bytes = tcp_bth_ext_bytes(opcode),
		.ext4 = ntohl(head->imm),
	};
	tqp_msglog_commit(&conn->log);
	trace_tqp_tx_message(conn->qpn, rec->msn, rec->opcode, rec->start_seq, rec->length);
}

/* Make the WQE at sq_next the current message. */
static enum ib_wc_status tqp_tx_load(struct tqp_conn *conn)
{
	const struct tqp_qp *qp = conn->qp;
	const struct rxe_send_wqe *wqe = tqp_ring_entry(qp->sq, conn->sq_next);
	struct tqp_tx_msg *msg = &conn->tx[conn->sq_next & qp->sq->mask];
	struct tqp_tx_cur *cur = &conn->cur;
	enum ib_wc_status status;
	struct tqp_wqe_head head;
	u8 opcode;

	tqp_wqe_copy_head(wqe, &head);
	if (!tqp_send_opcode(head.opcode, &opcode))
		return IB_WC_LOC_QP_OP_ERR;
	cur->sge = 0;
	cur->sge_off = 0;
	cur->is_inline = head.flags & IB_SEND_INLINE;
	tqp_tx_msg_init(msg, conn);
	status = cur->is_inline ? tqp_load_inline(conn, wqe, head.inline_bytes) :
				  tqp_load_sges(conn, wqe, head.num_sge, msg);
	if (status) {
		tqp_tx_msg_put(msg);	/* sender */
		tqp_tx_msg_put(msg);	/* acknowledgement */
		return status;
	}
	msg->wr_id = head.wr_id;
	msg->wc_opcode = IB_WC_SEND;
	msg->signaled = qp->sq_sig_all || head.flags & IB_SEND_SIGNALED;
	msg->bytes = cur->left;
	msg->loaded = true;
	tqp_log_message(conn, &head, opcode);
	if (!cur->left) {	/* a message of no bytes takes one byte of the stream */
		cur->is_inline = true;
		cur->data[0] = 0;
		cur->left = 1;
	}
	msg->end_seq = tcp_sk(conn->sk)->write_seq + cur->left;
	cur->msg = msg;
	cur->active = true;
	return IB_WC_SUCCESS;
}

/* ---- pages into TCP ---- */

/* skb frags that point at the application's pages; TCP takes no page references. */
static int tqp_fill_skb(struct sk_buff *skb, struct iov_iter *from, size_t length)
{
	struct skb_shared_info *shinfo = skb_shinfo(skb);
	int frag = shinfo->nr_frags;
	struct bvec_iter bi = {
		.bi_size = min_t(size_t, from->count, length),
		.bi_bvec_done = from->iov_offset,
	};
	unsigned long truesize = 0;
	u32 copied = 0;

	if (!frag)
		shinfo->flags |= SKBFL_MANAGED_FRAG_REFS;
	else if (unlikely(!skb_zcopy_managed(skb)))
		return -EMSGSIZE;
	while (bi.bi_size && frag < MAX_SKB_FRAGS) {
		struct bio_vec v = mp_bvec_iter_bvec(from->bvec, bi);

		copied += v.bv_len;
		truesize += PAGE_ALIGN(v.bv_len + v.bv_offset);
		__skb_fill_page_desc_noacc(shinfo, frag++, v.bv_page, v.bv_offset, v.bv_len);
		bvec_iter_advance_single(from->bvec, &bi, v.bv_len);
	}
	shinfo->nr_frags = frag;
	from->bvec += bi.bi_idx;
	from->nr_segs -= bi.bi_idx;
	from->count -= copied;
	from->iov_offset = bi.bi_bvec_done;
	skb->data_len += copied;
	skb->len += copied;
	skb->truesize += truesize;
	return bi.bi_size ? -EMSGSIZE : 0;
}

/* Page fragments from the current place on; *@bytes covered, the place unchanged. */
static int tqp_next_bvecs(struct tqp_conn *conn, u32 *bytes)
{
	const struct tqp_tx_cur *cur = &conn->cur;
	u32 off = cur->sge_off, done;
	int n = 0;

	*bytes = 0;
	for (int i = cur->sge; i < cur->nr_sge && n < TQP_SEND_BVECS; i++, off = 0) {
		u32 want = min_t(u32, cur->sges[i].length - off, TQP_SEND_PIECE_BYTES - *bytes);

		n += tqp_mr_bvecs(cur->msg->mrs[i], cur->sges[i].addr + off, want,
				  conn->bvecs + n, TQP_SEND_BVECS - n, &done);
		*bytes += done;
		if (done < cur->sges[i].length - off)
			break;
	}
	return n;
}

static void tqp_cur_advance(struct tqp_tx_cur *cur, u32 bytes)
{
	cur->left -= bytes;
	if (cur->is_inline) {
		cur->sge_off += bytes;
		return;
	}
	while (bytes) {
		u32 step = min(bytes, cur->sges[cur->sge].length - cur->sge_off);

		cur->sge_off += step;
		bytes -= step;
		if (cur->sge_off == cur->sges[cur->sge].length) {
			cur->sge++;
			cur->sge_off = 0;
		}
	}
}

static int tqp_send_piece(struct tqp_conn *conn, bool more)
{
	struct tqp_tx_cur *cur = &conn->cur;
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct kvec kv = { cur->data + cur->sge_off, cur->left };
	u32 bytes = cur->left;
	int n;

	if (cur->is_inline) {
		iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, &kv, 1, bytes);
	} else {
		n = tqp_next_bvecs(conn, &bytes);
		if (WARN_ON_ONCE(!n || !bytes))
			return -EFAULT;
		iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, conn->bvecs, n, bytes);
		msg.msg_flags |= MSG_ZEROCOPY;
		msg.msg_ubuf = &cur->msg->ubuf;
		msg.sg_from_iter = tqp_fill_skb;
	}
	if (bytes < cur->left)
		msg.msg_flags |= MSG_MORE;
	else
		msg.msg_flags |= MSG_EOR | (more ? MSG_MORE : 0);
	return tcp_sendmsg_locked(conn->sk, &msg, bytes);
}

static void tqp_tx_account(struct tqp_conn *conn, u32 bytes, bool copied)
{
	conn->info.tx_bytes += bytes;
	if (copied)
		conn->info.tx_copied_bytes += bytes;
	else
		conn->info.tx_zerocopy_bytes += bytes;
	tqp_count(conn->dev, TQP_C_tx_bytes, bytes);
	tqp_count(conn->dev, copied ? TQP_C_tx_copied_bytes : TQP_C_tx_zerocopy_bytes, bytes);
}

/* 0 when the current message is all in TCP. */
static int tqp_tx_push(struct tqp_conn *conn, bool more)
{
	struct tqp_tx_cur *cur = &conn->cur;
	int rc;

	while (cur->left) {
		rc = tqp_send_piece(conn, more);
		if (rc < 0)
			return rc;
		/* a nested run can only have failed the conn, never moved the place */
		tqp_cur_advance(cur, rc);
		tqp_tx_account(conn, rc, cur->is_inline);
	}
	return 0;
}

static bool tqp_tx_credit(struct tqp_conn *conn)
{
	if ((s16)(READ_ONCE(conn->peer_limit) - conn->tx_msn) > 0) {
		conn->probe_delay_ms = TQP_PROBE_FIRST_MS;
		return true;
	}
	if (conn->probe_allowed) {
		conn->probe_allowed = false;
		return true;
	}
	/* ask to be kicked first, then look again: the limit is written without the lock */
	WRITE_ONCE(conn->tx_wait_credit, true);
	smp_mb();
	if ((s16)(READ_ONCE(conn->peer_limit) - conn->tx_msn) > 0)
		return true;
	conn->info.tx_credit_waits++;
	tqp_count(conn->dev, TQP_C_tx_credit_waits, 1);
	trace_tqp_tx_credit_wait(conn->qpn, conn->tx_msn);
	tqp_queue_delayed(conn, &conn->probe_work, conn->probe_delay_ms);
	return false;
}

/* The WQE that cannot be sent completes with @status; everything after it is flushed. */
static void tqp_tx_refuse(struct tqp_conn *conn, enum ib_wc_status status)
{
	const struct rxe_send_wqe *wqe = tqp_ring_entry(conn->qp->sq, conn->sq_next);

	tqp_count(conn->dev, status == IB_WC_LOC_PROT_ERR ? TQP_C_tx_protection_errors :
							     TQP_C_wqe_invalid, 1);
	conn->tx_bad_status = status;
	conn->tx_bad_wr_id = READ_ONCE(wqe->wr.wr_id);
	conn->tx_failed = true;
	tqp_tx_finish_bad(conn);
}

static bool tqp_tx_ready(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;

	if (conn->state == TQP_CONN_HANDSHAKE && READ_ONCE(conn->rtr_seen))
		WRITE_ONCE(conn->state, TQP_CONN_ACTIVE);
	return conn->state == TQP_CONN_ACTIVE && conn->qp && !conn->tx_failed &&
	       !sock_flag(sk, SOCK_DEAD) &&
	       (1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT);
}

static bool tqp_tx_next(struct tqp_conn *conn)
{
	enum ib_wc_status status;

	if (!tqp_ring_posted(conn->qp->sq, conn->sq_next) || !tqp_tx_credit(conn))
		return false;
	conn->tx_wait_credit = false;
	status = tqp_tx_load(conn);
	if (status) {
		tqp_tx_refuse(conn, status);
		return false;
	}
	return true;
}

void tqp_tx_run(struct tqp_conn *conn)
{
	int rc;

	sock_owned_by_me(conn->sk);
	tqp_tx_finish_bad(conn);
	if (!tqp_tx_ready(conn) || conn->tx_running)
		return;
	conn->tx_running = true;
	conn->tx_wait_space = false;
	tqp_mss_update(conn);
	while (tqp_tx_ready(conn) && (conn->cur.active || tqp_tx_next(conn))) {
		bool more = tqp_ring_posted(conn->qp->sq, conn->sq_next) > 1 &&
			    (s16)(READ_ONCE(conn->peer_limit) - conn->tx_msn) > 0;

		rc = tqp_tx_push(conn, more);
		if (rc == -EAGAIN) {
			conn->tx_wait_space = true;
			break;
		}
		if (rc < 0) {
			tqp_conn_fail(conn, TCP_QP_REASON_PEER_CLOSED);
			break;
		}
		conn->cur.active = false;
		conn->info.tx_messages++;
		tqp_count(conn->dev, TQP_C_tx_messages, 1);
		conn->sq_next = (conn->sq_next + 1) & conn->qp->sq->mask;
		tqp_tx_msg_put(conn->cur.msg);
	}
	conn->tx_running = false;
}
