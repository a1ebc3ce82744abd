// SPDX-License-Identifier: GPL-2.0
/*
 * TCP's receive queue, read in order, into receive WQEs.
 *
 * Runs with the socket lock held, mostly in softirq from sk_data_ready.  The
 * stream is a sequence of messages without gaps; each skb's mapping says which
 * one it belongs to.  skb->decrypted means that the switch has already put the
 * bytes where they go.
 */
#include "conn.h"
#include "trace.h"

static void tqp_protocol_error(struct tqp_conn *conn)
{
	tqp_count(conn->dev, TQP_C_rx_protocol_errors, 1);
	tqp_conn_fail(conn, TCP_QP_REASON_PROTOCOL);
}

/* ---- receive WQEs ---- */

/* Copy the WQE of the current message once; false if none is posted. */
static bool tqp_rx_take_wqe(struct tqp_conn *conn)
{
	struct tqp_rx_cur *rx = &conn->rx;
	struct tqp_ring *rq = conn->qp->rq;
	const struct rxe_recv_wqe *wqe;
	u32 num_sge;

	if (rx->have_wqe)
		return true;
	if (!tqp_ring_posted(rq, rq->index))
		return false;
	wqe = tqp_ring_entry(rq, rq->index);
	rx->wr_id = READ_ONCE(wqe->wr_id);
	num_sge = min3(READ_ONCE(wqe->dma.num_sge), conn->qp->cap.max_recv_sge, (u32)TQP_SGE_MAX);
	rx->nr_sge = num_sge;
	rx->room = 0;
	for (u32 i = 0; i < num_sge; i++) {
		rx->sges[i].addr = READ_ONCE(wqe->dma.sge[i].addr);
		rx->sges[i].length = READ_ONCE(wqe->dma.sge[i].length);
		rx->sges[i].lkey = READ_ONCE(wqe->dma.sge[i].lkey);
		rx->room += rx->sges[i].length;
	}
	rx->have_wqe = true;
	return true;
}

static void tqp_rx_complete(struct tqp_conn *conn, enum ib_wc_status status)
{
	struct tqp_rx_cur *rx = &conn->rx;
	struct tqp_qp *qp = conn->qp;
	struct ib_uverbs_wc wc = {
		.wr_id = rx->wr_id,
		.status = status,
		.opcode = IB_WC_RECV,
		.byte_len = rx->msg.done,
		.qp_num = qp->qpn,
		.src_qp = qp->qpn,
		.port_num = 1,
	};

	if (rx->msg.opcode == TCP_BTH_OP_SEND_ONLY_IMM) {
		wc.ex.imm_data = htonl(rx->msg.ext4);
		wc.wc_flags = IB_WC_WITH_IMM;
	}
	conn->rx_msn++;
	/* the switch must see the slot as used before the application can post it again */
	if (conn->shadow)
		WRITE_ONCE(conn->shadow->completed,
			   cpu_to_le32(le32_to_cpu(conn->shadow->completed) + 1));
	tqp_ring_consume(qp->rq);
	/* every SEND counts as solicited: the wire has no bit for it */
	tqp_cq_post(qp->rcq, &wc, true);
	conn->info.rx_messages++;
	rx->msg.active = false;
	rx->have_wqe = false;
}

static void tqp_rx_fail(struct tqp_conn *conn, enum ib_wc_status status)
{
	tqp_count(conn->dev, status == IB_WC_LOC_LEN_ERR ? TQP_C_rx_length_errors :
							   TQP_C_rx_protection_errors, 1);
	tqp_rx_complete(conn, status);
	tqp_conn_fail(conn, TCP_QP_REASON_LOCAL_ERROR);
}

/* ---- messages ---- */

static bool tqp_rx_begin(struct tqp_conn *conn, const struct tqp_skb_map *map, u32 seq)
{
	if (!tqp_rx_msg_begin(&conn->rx.msg, map, seq, conn->rx_msn)) {
		tqp_protocol_error(conn);
		return false;
	}
	conn->rx_started = true;
	WRITE_ONCE(conn->rtr_acked, true);	/* the peer sends, so it saw our rtr */
	WRITE_ONCE(conn->rtr_seen, true);
	return true;
}

static void tqp_rx_account(struct tqp_conn *conn, u32 bytes, bool placed)
{
	conn->info.rx_delivered_bytes += bytes;
	if (placed)
		conn->info.rx_placed_bytes += bytes;
	else
		conn->info.rx_copied_bytes += bytes;
	tqp_count(conn->dev, TQP_C_rx_delivered_bytes, bytes);
	tqp_count(conn->dev, placed ? TQP_C_rx_placed_bytes : TQP_C_rx_copied_bytes, bytes);
}

/* @bytes of @skb at @off belong to the message at rx->msg.done.  False: stop. */
static bool tqp_rx_bytes(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 bytes)
{
	struct tqp_rx_cur *rx = &conn->rx;
	enum ib_wc_status status = IB_WC_SUCCESS;

	if (tqp_rx_msg_empty(&rx->msg))
		return true;	/* the one stream byte of an empty message */
	if ((u64)rx->msg.done + bytes > rx->room)
		status = IB_WC_LOC_LEN_ERR;
	else if (!skb->decrypted)
		status = tqp_place_copy(conn, skb, off, rx->msg.done, bytes);
	if (status) {
		tqp_rx_fail(conn, status);
		return false;
	}
	tqp_rx_account(conn, bytes, skb->decrypted);
	return true;
}

static void tqp_rx_stall(struct tqp_conn *conn)
{
	if (!conn->rx_stalled) {
		conn->rx_stalled = true;
		conn->rx_stall_ms = TQP_STALL_FIRST_MS;
		conn->info.rx_stalls++;
		tqp_count(conn->dev, TQP_C_rx_stalls, 1);
		trace_tqp_rx_stall(conn->qpn, conn->rx_msn);
		tqp_queue_delayed(conn, &conn->rx_work, conn->rx_stall_ms);
	}
}

/* One skb's worth, or up to the message's end.  Bytes consumed; 0: stop. */
static u32 tqp_rx_step(struct tqp_conn *conn, struct sk_buff *skb, u32 off)
{
	struct tqp_rx_msg *msg = &conn->rx.msg;
	const struct tqp_skb_map *map = tqp_skb_map(skb);
	u32 bytes;

	if (!msg->active && !map && !conn->rx_started)
		return 0;	/* plain bytes: recv() takes them */
	if (!msg->active && !tqp_rx_begin(conn, map, tcp_sk(conn->sk)->copied_seq))
		return 0;
	if (!tqp_rx_msg_learn(msg, map)) {
		tqp_protocol_error(conn);
		return 0;
	}
	if (!tqp_rx_take_wqe(conn)) {
		tqp_rx_stall(conn);
		return 0;
	}
	conn->rx_stalled = false;
	bytes = tqp_rx_msg_share(msg, skb->len - off);
	if (!tqp_rx_bytes(conn, skb, off, bytes))
		return 0;
	if (tqp_rx_msg_take(msg, bytes)) {
		tqp_count(conn->dev, TQP_C_rx_messages, 1);
		trace_tqp_rx_message(conn->qpn, msg->msn, msg->opcode, msg->start_seq, msg->done);
		tqp_rx_complete(conn, IB_WC_SUCCESS);
	}
	return bytes;
}

static void tqp_rx_loop(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;
	struct tcp_sock *tp = tcp_sk(sk);
	struct sk_buff *skb;
	u32 off, bytes;

	while (conn->state != TQP_CONN_DEAD && conn->qp &&
	       (skb = tcp_recv_skb(sk, tp->copied_seq, &off))) {
		if (unlikely(tp->urg_data)) {
			tqp_count(conn->dev, TQP_C_urgent_refused, 1);
			tqp_conn_fail(conn, TCP_QP_REASON_URGENT);
			return;
		}
		if (off >= skb->len) {		/* a bare FIN */
			conn->rx_eof = true;
			return;
		}
		bytes = tqp_rx_step(conn, skb, off);
		if (!bytes)
			return;
		tcp_read_done(sk, bytes);
	}
}

/*
 * The peer has used up the credit it knows of.  Receives posted from now on
 * ring no doorbell in librxe, so look for them for a while; after that the
 * peer's probe brings us back.
 */
static void tqp_rx_watch(struct tqp_conn *conn)
{
	if ((s16)(conn->advertised - conn->rx_msn) > 0 || conn->rx_stalled) {
		conn->watch_ms = TQP_STALL_FIRST_MS;
		return;
	}
	if (conn->watch_ms > TQP_STALL_LAST_MS)
		return;
	tqp_queue_delayed(conn, &conn->rx_work, conn->watch_ms);
}

static bool tqp_rx_drained(const struct sock *sk)
{
	return skb_queue_empty(&sk->sk_receive_queue);
}

void tqp_rx_run(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;

	if (conn->rx_running || conn->state == TQP_CONN_DEAD || !conn->qp)
		return;
	conn->rx_running = true;
	tqp_rx_loop(conn);
	conn->rx_running = false;
	if (conn->state == TQP_CONN_DEAD)
		return;
	if (conn->rx_started)
		tqp_rx_watch(conn);
	if (!(sk->sk_shutdown & RCV_SHUTDOWN))
		return;
	if (conn->rx_eof || tqp_rx_drained(sk)) {
		tqp_count(conn->dev, TQP_C_peer_closes, 1);
		tqp_conn_fail(conn, conn->rx.msg.active && conn->rx.msg.done ?
				    TCP_QP_REASON_PROTOCOL : TCP_QP_REASON_PEER_CLOSED);
	}
}

/*
 * librxe rings no doorbell for receives.  While data waits for one we look
 * again, ever more slowly; a doorbell or a new segment looks at once.
 */
void tqp_rx_work(struct work_struct *work)
{
	struct tqp_conn *conn = container_of(to_delayed_work(work), struct tqp_conn, rx_work);
	struct sock *sk = conn->sk;

	lock_sock(sk);
	conn->watch_ms *= 2;
	tqp_credit_update(conn);
	tqp_rx_run(conn);
	if (conn->rx_stalled && conn->state != TQP_CONN_DEAD && conn->qp) {
		conn->rx_stall_ms = min(conn->rx_stall_ms * 2, (u32)TQP_STALL_LAST_MS);
		tqp_queue_delayed(conn, &conn->rx_work, conn->rx_stall_ms);
	}
	release_sock(sk);
	tqp_conn_put(conn);
}
