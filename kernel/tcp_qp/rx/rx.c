// SPDX-License-Identifier: GPL-2.0
/*
 * TCP's receive queue, read in order, into receive WQEs.
 *
 * Runs with the socket lock held, mostly in softirq from sk_data_ready.  The
 * stream is a sequence of messages without gaps; each skb's mapping says which
 * one it belongs to.  skb->decrypted means that the switch has already put the
 * bytes where they go.
 */
#include "conn/skb_map.h"
#include "handshake/handshake.h"
#include "memory/memory.h"
#include "object/trace.h"
#include "rx/rx.h"
#include "tx/tx.h"

/* ---- faults ---- */

static void tqp_protocol_error(struct tqp_conn *conn)
{
	tqp_count(conn->dev, TQP_C_rx_protocol_errors, 1);
	tqp_conn_nak(conn, TCP_QP_REASON_PROTOCOL, TCP_BTH_NAK_INVALID_REQUEST);
}

/* The receive itself is at fault; the peer is told, too. */
static void tqp_rx_fail(struct tqp_conn *conn, enum ib_wc_status status)
{
	bool length = status == IB_WC_LOC_LEN_ERR;

	tqp_count(conn->dev, length ? TQP_C_rx_length_errors : TQP_C_rx_protection_errors, 1);
	tqp_rx_complete(conn, status);
	tqp_conn_nak(conn, TCP_QP_REASON_LOCAL_ERROR, length ? TCP_BTH_NAK_INVALID_REQUEST :
							       TCP_BTH_NAK_REMOTE_OPERATIONAL);
}

static void tqp_rx_refuse(struct tqp_conn *conn, enum tcp_bth_syndrome syndrome)
{
	tqp_count(conn->dev, TQP_C_rx_access_errors, 1);
	tqp_conn_nak(conn, TCP_QP_REASON_REMOTE_ACCESS, syndrome);
}

/* A sink of ours went away while its response came. */
static void tqp_rx_sink_fail(struct tqp_conn *conn, enum ib_wc_status status)
{
	tqp_count(conn->dev, TQP_C_rx_protection_errors, 1);
	tqp_read_fail(conn, status);
	tqp_conn_nak(conn, TCP_QP_REASON_LOCAL_ERROR, TCP_BTH_NAK_REMOTE_OPERATIONAL);
}

/* ---- messages ---- */

static bool tqp_rx_begin(struct tqp_conn *conn, const struct tqp_skb_map *map, u32 seq)
{
	if (!tqp_rx_msg_begin(&conn->rx.msg, map, seq, &conn->rx.next)) {
		tqp_protocol_error(conn);
		return false;
	}
	conn->rx.started = true;
	if (conn->rx.msg.kind == TCP_BTH_KIND_ACKNOWLEDGE)
		return true;		/* may come before our rtr */
	WRITE_ONCE(conn->handshake.rtr_acked, true);	/* the peer sends, so it saw our rtr */
	WRITE_ONCE(conn->handshake.rtr_seen, true);
	return true;
}

/* Nothing of the message was taken yet: may it be what it says? */
static bool tqp_rx_admit(struct tqp_conn *conn)
{
	const struct tqp_rx_msg *msg = &conn->rx.msg;
	int syndrome;

	switch (msg->kind) {
	case TCP_BTH_KIND_WRITE:
		syndrome = tqp_write_check(conn);
		if (!syndrome)
			return true;
		tqp_rx_refuse(conn, syndrome);
		return false;
	case TCP_BTH_KIND_READ_RESPONSE:
	case TCP_BTH_KIND_ATOMIC_RESPONSE:
		if (tqp_read_expected(conn))
			return true;
		tqp_protocol_error(conn);
		return false;
	default:
		return true;
	}
}

/* The memory for the lengths of mixed trains, which only peers that send them make us have. */
static bool tqp_rx_has_table(struct tqp_conn *conn)
{
	struct tqp_rx_mixed *mixed = &conn->rx.train.mixed;

	if (!mixed->entries)
		mixed->entries = kmalloc(TCP_BTH_LENGTHS_MAX_BYTES, GFP_ATOMIC | __GFP_NOWARN);
	return mixed->entries;
}

/* May the next @bytes be taken?  False: a receive, a response slot or memory is missing. */
static bool tqp_rx_room(struct tqp_conn *conn, u32 bytes)
{
	const struct tqp_rx_msg *msg = &conn->rx.msg;

	switch (msg->kind) {
	case TCP_BTH_KIND_SEND:
		return tqp_rx_take_wqe(conn);
	case TCP_BTH_KIND_WRITE:	/* the immediate takes a receive, at the end */
		return !tqp_rx_msg_untagged(msg) ||
		       msg->done + bytes != tqp_msg_stream_bytes(msg->length) ||
		       tqp_rx_take_wqe(conn);
	case TCP_BTH_KIND_READ_REQUEST:
	case TCP_BTH_KIND_ATOMIC_REQUEST:
		return tqp_response_room(conn);
	case TCP_BTH_KIND_LENGTHS:
		return tqp_rx_has_table(conn);
	default:
		return true;
	}
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
	if (conn->rx.msg.kind == TCP_BTH_KIND_WRITE)
		tqp_count(conn->dev, TQP_C_rx_write_bytes, bytes);
	else if (conn->rx.msg.kind == TCP_BTH_KIND_READ_RESPONSE)
		tqp_count(conn->dev, TQP_C_rx_read_bytes, bytes);
}

/* Bytes for a receive buffer, a WRITE's target or a READ's sink.  False: stop. */
static bool tqp_rx_payload(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 bytes)
{
	const struct tqp_rx_msg *msg = &conn->rx.msg;
	enum ib_wc_status status = IB_WC_SUCCESS;

	if (msg->kind == TCP_BTH_KIND_SEND && (u64)msg->done + bytes > conn->rx.wqe.room)
		status = IB_WC_LOC_LEN_ERR;
	else if (skb->decrypted)
		;		/* it is there */
	else if (msg->kind == TCP_BTH_KIND_SEND)
		status = tqp_place_copy(conn, skb, off, msg->done, bytes);
	else if (msg->kind == TCP_BTH_KIND_WRITE)
		status = tqp_place_at(conn, skb, off, msg->rkey, msg->va + msg->done, bytes,
				      IB_ACCESS_REMOTE_WRITE);
	else
		status = tqp_read_copy(conn, skb, off, bytes);
	if (!status) {
		tqp_rx_account(conn, bytes, skb->decrypted);
		return true;
	}
	if (msg->kind == TCP_BTH_KIND_SEND)
		tqp_rx_fail(conn, status);
	else if (msg->kind == TCP_BTH_KIND_WRITE)
		tqp_rx_refuse(conn, TCP_BTH_NAK_REMOTE_ACCESS);
	else
		tqp_rx_sink_fail(conn, status);
	return false;
}

/* @bytes of @skb at @off belong to the message at msg->done.  False: stop. */
static bool tqp_rx_bytes(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 bytes)
{
	const struct tqp_rx_msg *msg = &conn->rx.msg;
	u32 room = sizeof(conn->rx.operands);
	u8 *to = conn->rx.operands;

	if (tqp_rx_msg_empty(msg))
		return true;	/* the one stream byte of an empty message */
	if (msg->kind <= TCP_BTH_KIND_READ_RESPONSE)
		return tqp_rx_payload(conn, skb, off, bytes);
	if (msg->kind == TCP_BTH_KIND_LENGTHS) {
		to = (u8 *)conn->rx.train.mixed.entries;
		room = TCP_BTH_LENGTHS_MAX_BYTES;
	}
	if (skb->decrypted || (u64)msg->done + bytes > room ||
	    skb_copy_bits(skb, off, to + msg->done, bytes)) {
		tqp_protocol_error(conn);
		return false;
	}
	return true;
}

/* What follows is the train of these lengths. */
static bool tqp_rx_lengths(struct tqp_conn *conn)
{
	const struct tqp_rx_msg *msg = &conn->rx.msg;

	return msg->msn == conn->rx.next.untagged &&
	       tqp_mixed_begin(&conn->rx.train.mixed, msg->msn, msg->start_seq + msg->length,
			       msg->length);
}

/* The message is whole.  False: stop. */
static bool tqp_rx_end(struct tqp_conn *conn)
{
	struct tqp_rx_msg *msg = &conn->rx.msg;
	enum ib_wc_status status;
	int syndrome;

	if (!msg->opcode_known) {
		tqp_protocol_error(conn);
		return false;
	}
	tqp_count(conn->dev, TQP_C_rx_messages, msg->kind != TCP_BTH_KIND_LENGTHS);
	trace_tqp_rx_message(conn->qpn, msg->msn, msg->opcode, msg->start_seq, msg->done);
	switch (msg->kind) {
	case TCP_BTH_KIND_SEND:
		if (tcp_bth_op(msg->opcode)->ext == TCP_BTH_EXT_IETH &&
		    !tqp_mw_invalidate(conn, msg->ext4)) {
			tqp_rx_refuse(conn, TCP_BTH_NAK_REMOTE_ACCESS);
			return false;
		}
		fallthrough;
	case TCP_BTH_KIND_WRITE:
		if (tqp_rx_msg_untagged(msg))
			tqp_rx_complete(conn, IB_WC_SUCCESS);
		break;
	case TCP_BTH_KIND_READ_REQUEST:
	case TCP_BTH_KIND_ATOMIC_REQUEST:
		syndrome = tqp_request(conn);
		if (syndrome) {
			tqp_rx_refuse(conn, syndrome);
			return false;
		}
		break;
	case TCP_BTH_KIND_ATOMIC_RESPONSE:
		status = tqp_atomic_result(conn);
		if (status) {
			tqp_rx_sink_fail(conn, status);
			return false;
		}
		fallthrough;
	case TCP_BTH_KIND_READ_RESPONSE:
		tqp_read_done(conn);
		break;
	case TCP_BTH_KIND_TERMINATE:
		tqp_terminated(conn, conn->rx.operands);
		return false;
	case TCP_BTH_KIND_ACKNOWLEDGE:
		tqp_peer_acknowledge(conn, msg->ext4);
		break;
	case TCP_BTH_KIND_LENGTHS:
		if (!tqp_rx_lengths(conn)) {
			tqp_protocol_error(conn);
			return false;
		}
		break;
	}
	tqp_rx_msg_count(msg, &conn->rx.next);
	msg->active = false;
	return true;
}

static void tqp_rx_stall(struct tqp_conn *conn)
{
	if (!conn->rx.stalled) {
		conn->rx.stalled = true;
		conn->rx.stall_ms = TQP_STALL_FIRST_MS;
		conn->info.rx_stalls++;
		tqp_count(conn->dev, TQP_C_rx_stalls, 1);
		trace_tqp_rx_stall(conn->qpn, conn->rx.next.untagged);
		tqp_queue_delayed(conn, &conn->rx.work, conn->rx.stall_ms);
	}
}

/*
 * A stock end's hello came before the hook was there to see its option.  What
 * tells it from plain bytes is the end's next message, the answer to our rtr.
 */
static u32 tqp_rx_hello(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq)
{
	struct sk_buff *next = skb_peek_next(skb, &conn->sk->sk_receive_queue);
	struct tqp_skb_map room;
	const struct tqp_skb_map *map = next ? tqp_skb_map(next, &room) : NULL;
	u32 bytes = skb->len - off;

	if (!map || map->opcode != TCP_BTH_OP_ACKNOWLEDGE || map->start_seq != seq + bytes)
		return 0;
	return tqp_stock_hello(conn->sk, seq, bytes) == bytes ? bytes : 0;
}

/* One skb's worth, or up to the message's end; @seq is at @off.  Bytes consumed; 0: stop. */
static u32 tqp_rx_step(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq)
{
	struct tqp_skb_map room;
	const struct tqp_skb_map *map =
		tqp_map_at(&conn->rx.train, tqp_skb_map(skb, &room), seq);
	struct tqp_rx_msg *msg = &conn->rx.msg;
	u32 bytes;

	if (!msg->active && !map && !conn->rx.started)
		return tqp_rx_hello(conn, skb, off, seq);	/* or recv() takes them */
	if (!msg->active && !tqp_rx_begin(conn, map, seq))
		return 0;
	if (!tqp_rx_msg_learn(msg, map, &conn->rx.next)) {
		tqp_protocol_error(conn);
		return 0;
	}
	if (!msg->done && !tqp_rx_admit(conn))
		return 0;
	bytes = tqp_rx_msg_share(msg, skb->len - off);
	if (!tqp_rx_room(conn, bytes)) {
		tqp_rx_stall(conn);
		return 0;
	}
	conn->rx.stalled = false;
	if (!tqp_rx_bytes(conn, skb, off, bytes))
		return 0;
	if (tqp_rx_msg_take(msg, bytes) && !tqp_rx_end(conn))
		return 0;
	return bytes;
}

/* May @count of the train's WRITEs, from number @place on, go there?  Their hull is in the region iff all are. */
static bool tqp_rx_may_write(struct tqp_conn *conn, u32 place, u32 count)
{
	const struct tqp_rx_train *train = &conn->rx.train;
	u64 first = tqp_train_va(train, place), last = tqp_train_va(train, place + count - 1);

	return tqp_may_write(conn, train->all.rkey, first, last - first + train->all.length);
}

/* Copies so many of the @count WRITEs of the train's in @skb, from number @place on. */
static u32 tqp_rx_copy_writes(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 place,
			      u32 count)
{
	const struct tqp_rx_train *train = &conn->rx.train;
	u32 length = train->all.length, n = 0;

	while (n < count && !tqp_place_at(conn, skb, off + n * length, train->all.rkey,
					  tqp_train_va(train, place + n), length,
					  IB_ACCESS_REMOTE_WRITE))
		n++;
	return n;
}

/* As tqp_rx_train(), of WRITEs. */
static u32 tqp_rx_writes(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq)
{
	const struct tqp_rx_train *train = &conn->rx.train;
	u32 at = seq - train->all.start_seq, length = train->all.length, place = at / length, count;

	if (train->all.opcode != TCP_BTH_OP_WRITE_TRAIN || conn->rx.msg.active || at % length ||
	    (u16)(train->all.msn + place) != conn->rx.next.write)
		return 0;
	count = min(skb->len - off, train->bytes - at) / length;
	if (!count || !tqp_rx_may_write(conn, place, count))
		return 0;
	if (!skb->decrypted)
		count = tqp_rx_copy_writes(conn, skb, off, place, count);
	conn->rx.next.write += count;
	tqp_count(conn->dev, TQP_C_rx_messages, count);
	return count * length;
}

/* Of one of any kind; a mixed one's end is told by looking. */
static bool tqp_rx_in_train(struct tqp_conn *conn, u32 seq)
{
	return tqp_in_train(&conn->rx.train, seq) || tqp_mixed_has(&conn->rx.train.mixed, seq);
}

/* The same, with all of a train's messages in it; *@stop: there is more, but not now. */
static u32 tqp_rx_skb(struct tqp_conn *conn, struct sk_buff *skb, u32 off, bool *stop)
{
	u32 seq = tcp_sk(conn->sk)->copied_seq, taken, bytes;

	/* this one compares what the skb says with what we know */
	bytes = tqp_rx_step(conn, skb, off, seq);
	taken = bytes;
	while (bytes && off + taken < skb->len && tqp_rx_in_train(conn, seq + taken) &&
	       conn->state != TQP_CONN_DEAD && conn->qp) {
		bytes = tqp_rx_train(conn, skb, off + taken, seq + taken) ?:
			tqp_rx_writes(conn, skb, off + taken, seq + taken) ?:
			tqp_rx_mixed(conn, skb, off + taken, seq + taken);
		if (bytes)
			tqp_rx_account(conn, bytes, skb->decrypted);
		else
			bytes = tqp_rx_step(conn, skb, off + taken, seq + taken);
		taken += bytes;
	}
	*stop = !bytes;
	return taken;
}

/*
 * A recv() that was waiting for the lock when attach had it reads with TCP's
 * own operation, and may have taken what was the QP's.
 */
static bool tqp_rx_alone(struct tqp_conn *conn)
{
	const struct tcp_sock *tp = tcp_sk(conn->sk);

	if (likely(!conn->rx.started || tp->copied_seq == conn->rx.seq))
		return true;
	if (tp->urg_data)	/* tcp_check_urg() moved it */
		return true;
	tqp_conn_fail(conn, TCP_QP_REASON_SOCKET_IN_USE);
	return false;
}

/* What the turn took, of bytes and of messages. */
static u64 tqp_rx_cost(const struct tqp_conn *conn, u32 bytes, u64 messages_before)
{
	u64 messages = conn->info.rx_messages - messages_before;

	return bytes + (messages + 1) * TQP_RX_MESSAGE_BYTES;
}

/* A closed socket has no other turn, and what came before the end is received before it. */
static s64 tqp_rx_turn(const struct sock *sk)
{
	return sk->sk_state == TCP_CLOSE ? S64_MAX : TQP_RX_TURN_BYTES;
}

void tqp_rx_yield(struct tqp_conn *conn)
{
	if (!conn->rx.ack_held) {
		conn->rx.acked = tcp_sk(conn->sk)->rcv_wup;
		conn->rx.ack_cut = false;
		conn->rx.ack_held = true;
	}
	conn->rx.yielded = true;
	tqp_tx_kick(conn);
}

/* The peer has not heard of what was received since, if TCP said it meanwhile. */
static void tqp_rx_release_ack(struct tqp_conn *conn)
{
	if (likely(!conn->rx.ack_held) || conn->rx.yielded)
		return;
	conn->rx.ack_held = false;
	if (conn->rx.ack_cut)
		tqp_send_ack(conn);
}

static void tqp_rx_loop(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;
	struct tcp_sock *tp = tcp_sk(sk);
	s64 turn = tqp_rx_turn(sk);
	struct sk_buff *skb;
	u32 off, bytes;
	u64 messages;
	bool stop;

	conn->rx.yielded = false;

	while (conn->state != TQP_CONN_DEAD && conn->qp &&
	       (skb = tcp_recv_skb(sk, tp->copied_seq, &off))) {
		if (unlikely(tp->urg_data)) {
			tqp_count(conn->dev, TQP_C_urgent_refused, 1);
			tqp_conn_fail(conn, TCP_QP_REASON_URGENT);
			return;
		}
		if (off >= skb->len) {		/* a bare FIN */
			conn->rx.eof = true;
			return;
		}
		if (unlikely(!skb_frags_readable(skb))) {
			tqp_conn_fail(conn, TCP_QP_REASON_DEVICE_QUEUE);
			return;
		}
		messages = conn->info.rx_messages;
		bytes = tqp_rx_skb(conn, skb, off, &stop);
		if (bytes)
			tcp_read_done(sk, bytes);
		if (conn->offload.shadow)	/* after the copy: the switch places later WRITEs now */
			smp_store_release(&conn->offload.shadow->consumed, cpu_to_le32(tp->copied_seq));
		if (stop)
			return;
		turn -= tqp_rx_cost(conn, bytes, messages);
		if (turn <= 0) {
			tqp_rx_yield(conn);
			return;
		}
	}
}

/*
 * The peer has used up the credit it knows of.  Receives posted from now on
 * ring no doorbell in librxe, so look for them for a while; after that the
 * peer's probe brings us back.
 */
static void tqp_rx_watch(struct tqp_conn *conn)
{
	if ((s16)(conn->credit.advertised - conn->rx.next.untagged) > 0 || conn->rx.stalled) {
		conn->rx.watch_ms = TQP_STALL_FIRST_MS;
		return;
	}
	if (conn->rx.watch_ms > TQP_STALL_LAST_MS)
		return;
	tqp_queue_delayed(conn, &conn->rx.work, conn->rx.watch_ms);
}

static bool tqp_rx_drained(const struct sock *sk)
{
	return skb_queue_empty(&sk->sk_receive_queue);
}

/* Messages have ended: does the peer wait for their ACK?  In softirq we are in TCP's receive path, which sends it. */
static void tqp_rx_quick_ack(struct tqp_conn *conn)
{
	const struct tcp_sock *tp = tcp_sk(conn->sk);
	u8 slot = tqp_quickack_slot(conn->rx.msg.kind, conn->rx.msg.length);

	if (!inet_csk_ack_scheduled(conn->sk) ||
	    !tqp_quickack_end(&conn->rx.quickack, slot, tp->tcp_mstamp, tcp_min_rtt(tp)))
		return;
	if (in_softirq())
		inet_csk(conn->sk)->icsk_ack.pending |= ICSK_ACK_NOW;
	else
		tqp_send_ack(conn);
	tqp_count(conn->dev, TQP_C_rx_quick_acks, 1);
}

void tqp_rx_run(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;
	u32 before = conn->rx.seq;

	if (conn->rx.running || conn->state == TQP_CONN_DEAD || !conn->qp)
		return;
	/*
	 * Attach is not through: engine, versions and the NIC's context, whose receives are
	 * counted from here, are made without the lock.  An honest peer sends nothing yet.
	 */
	if (!conn->handshake.rtr_enabled)
		return;
	if (!tqp_rx_alone(conn))
		return;
	conn->rx.running = true;
	tqp_rx_loop(conn);
	conn->rx.seq = tcp_sk(sk)->copied_seq;
	conn->rx.running = false;
	tqp_rx_release_ack(conn);
	if (conn->state == TQP_CONN_DEAD)
		return;
	if (conn->rx.started)
		tqp_rx_watch(conn);
	/* nobody waits for the acknowledgement of LENGTHS */
	if (conn->rx.seq != before && !conn->rx.msg.active &&
	    conn->rx.msg.kind != TCP_BTH_KIND_LENGTHS)
		tqp_rx_quick_ack(conn);
	if (!(sk->sk_shutdown & RCV_SHUTDOWN))
		return;
	if (conn->rx.eof || tqp_rx_drained(sk)) {
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
	struct tqp_conn *conn = container_of(to_delayed_work(work), struct tqp_conn, rx.work);
	struct sock *sk = conn->sk;

	lock_sock(sk);
	conn->rx.watch_ms *= 2;
	tqp_credit_update(conn);
	tqp_rx_run(conn);
	if (conn->rx.stalled && conn->state != TQP_CONN_DEAD && conn->qp) {
		conn->rx.stall_ms = min(conn->rx.stall_ms * 2, (u32)TQP_STALL_LAST_MS);
		tqp_queue_delayed(conn, &conn->rx.work, conn->rx.stall_ms);
	}
	release_sock(sk);
	tqp_conn_put(conn);
}
