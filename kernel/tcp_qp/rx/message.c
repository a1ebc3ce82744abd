// SPDX-License-Identifier: GPL-2.0
/*
 * One received message, from its first byte to its last: may it be what it says,
 * is there room, where do its bytes go, what does its end do.  skb->decrypted
 * means that the switch has already put the bytes where they go.
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

/*
 * The receive itself is at fault; the peer is told, too.  The NIC may be writing to others of
 * its buffers, so it completes when that has forgotten the queue pair: tqp_rx_flush().
 */
static void tqp_rx_fail(struct tqp_conn *conn, enum ib_wc_status status)
{
	bool length = status == IB_WC_LOC_LEN_ERR;

	tqp_count(conn->dev, length ? TQP_C_rx_length_errors : TQP_C_rx_protection_errors, 1);
	conn->rx.wqe.failed = status;
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
	if (unlikely(!READ_ONCE(conn->handshake.rtr_seen)))
		tqp_peer_is_ready(conn);
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

/* The memory for the tables of mixed trains, which only peers that send them make us have. */
static bool tqp_rx_has_table(struct tqp_conn *conn)
{
	struct tqp_rx_mixed *mixed = &conn->rx.train.mixed;

	if (!mixed->entries)
		mixed->entries = kmalloc(TCP_BTH_TABLE_MAX_BYTES, GFP_ATOMIC | __GFP_NOWARN);
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

void tqp_rx_account(struct tqp_conn *conn, u32 bytes, bool placed)
{
	conn->counters.rx_delivered_bytes += bytes;
	if (placed)
		conn->counters.rx_placed_bytes += bytes;
	else
		conn->counters.rx_copied_bytes += bytes;
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
		room = TCP_BTH_TABLE_MAX_BYTES;
	}
	if (skb->decrypted || (u64)msg->done + bytes > room ||
	    skb_copy_bits(skb, off, to + msg->done, bytes)) {
		tqp_protocol_error(conn);
		return false;
	}
	return true;
}

/* What follows is the train of these lengths, or targets. */
static bool tqp_rx_lengths(struct tqp_conn *conn)
{
	const struct tqp_rx_msg *msg = &conn->rx.msg;
	u16 next = msg->opcode == TCP_BTH_OP_TARGETS ? conn->rx.next.write : conn->rx.next.untagged;

	return msg->msn == next &&
	       tqp_mixed_begin(&conn->rx.train.mixed, msg->opcode, msg->msn,
			       msg->start_seq + msg->length, msg->length);
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
		conn->counters.rx_stalls++;
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

u32 tqp_rx_step(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq)
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
