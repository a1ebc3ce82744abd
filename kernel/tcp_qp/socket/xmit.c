// SPDX-License-Identifier: GPL-2.0
/*
 * Egress: put tcp_bth on what TCP sends.
 *
 * Runs as icsk_af_ops->queue_xmit: the skb is a clone that owns its headroom,
 * the TCP header is complete, there is no IP header yet, the socket is locked.
 * Retransmissions, probes and loss recovery come through here too.
 */
#include <tcp_qp/tcp_bth_option.h>
#include "handshake/handshake.h"
#include "offload/offload.h"
#include "rx/rx.h"
#include "socket/socket.h"

enum {
	/* Two messages of a page, of which TCP may hear together; an initial window holds a third. */
	TQP_CARRIED_BYTES = 6 * 1460,
	TQP_CARRIED_SOON_BYTES = 64 << 10,	/* data leaves as soon as TCP has heard of these */
	TQP_CARRIED_WINDOW_BYTES = 64 << 10,	/* that the peer still has */
};

/* The stack's timestamp option, if it wrote one. */
static bool tqp_stack_timestamps(const struct tcphdr *th, u32 *tsval, u32 *tsecr)
{
	const u8 *opt = (const u8 *)(th + 1);

	/* tcp_options_write() puts it first, in this aligned form */
	if (th->doff < 8 || opt[0] != TCPOPT_NOP || opt[1] != TCPOPT_NOP ||
	    opt[2] != TCPOPT_TIMESTAMP || opt[3] != TCPOLEN_TIMESTAMP)
		return false;
	*tsval = tcp_bth_get32(opt + 4);
	*tsecr = tcp_bth_get32(opt + 8);
	return true;
}

/* A hole, or what came twice: of what TCP writes on segments of a connection only SACK is left. */
static bool tqp_tells_sack(const struct tcphdr *th)
{
	u32 tsval, tsecr;
	u32 stamps = tqp_stack_timestamps(th, &tsval, &tsecr) ? TCPOLEN_TSTAMP_ALIGNED : 0;

	return th->doff * 4 - sizeof(*th) > stamps;
}

/* Replace @old option bytes by @new, moving the fixed header; NULL if no memory. */
static struct tcphdr *tqp_resize_options(struct sk_buff *skb, u32 old, u32 new)
{
	struct tcphdr *th;

	if (new > old && skb_cow_head(skb, new - old))
		return NULL;
	th = tcp_hdr(skb);
	if (new > old) {
		skb_push(skb, new - old);
		memmove(skb->data, th, sizeof(*th));
	} else if (new < old) {
		memmove((u8 *)th + (old - new), th, sizeof(*th));
		__skb_pull(skb, old - new);
	}
	skb_reset_transport_header(skb);
	th = tcp_hdr(skb);
	th->doff = (sizeof(*th) + new) / 4;
	return th;
}

/* rtr until it is acknowledged, rtr_ack for as long as the peer repeats its own */
static u8 tqp_rtr_flags(const struct tqp_conn *conn)
{
	u8 flags = 0;

	if (conn->handshake.rtr_enabled && !READ_ONCE(conn->handshake.rtr_acked))
		flags |= TCP_BTH_F_RTR;
	if (READ_ONCE(conn->handshake.rtr_owed))
		flags |= TCP_BTH_F_RTR_ACK;
	return flags;
}

/* The device may be gone once the QP is: its counters end with it. */
static void tqp_count_segment(struct tqp_conn *conn, bool sack_stripped)
{
	conn->counters.tx_segments++;
	conn->counters.tx_sack_stripped += sack_stripped;
	if (!conn->qp)
		return;
	tqp_count(conn->dev, TQP_C_tx_segments, 1);
	tqp_count(conn->dev, TQP_C_tx_sack_stripped, sack_stripped);
}

static void tqp_write_icrc(struct sk_buff *skb, struct tcphdr *th, u32 opt_bytes)
{
	u8 *opt = (u8 *)(th + 1);

	tcp_bth_put32(opt + offsetof(struct tcp_bth_v0, icrc),
		      tqp_icrc(opt, opt_bytes, skb, th->doff * 4));
}

/*
 * Bytes of the stack's timestamp option that stay in front of ours: none where
 * ours takes the values in.
 */
static u32 tqp_timestamps_beside(const struct tqp_conn *conn, struct tcp_bth *bth, bool stamped)
{
	if (!stamped)
		return 0;
	if (READ_ONCE(conn->handshake.peer_stock) &&
	    TCPOLEN_TSTAMP_ALIGNED + tcp_bth_opt_bytes(bth) <= TCP_BTH_OPT_MAX_BYTES)
		return TCPOLEN_TSTAMP_ALIGNED;
	bth->flags |= TCP_BTH_F_TIMESTAMP;
	return 0;
}

static bool tqp_ends_message(const struct tqp_msg_rec *rec, u32 seq, u32 payload)
{
	return seq - rec->start_seq + payload >= tqp_msg_stream_bytes(rec->length);
}

/*
 * A send() that slipped in: tqp_tx_alone().  Its bytes must not leave, with or
 * without an option: this socket's peer would take them for the QP's.  While
 * tx.running TCP may send what it has not told us of yet.
 */
static bool tqp_foreign(const struct tqp_conn *conn, u32 seq, u32 payload)
{
	return !conn->tx.running && after(seq + payload, tqp_tx_end_seq(conn)) &&
	       tqp_tx_begun(conn);
}

/*
 * A probe of the path's MTU, as TCP makes them, points at the application's pages without a ubuf:
 * nobody would know when a driver lets go of them.  What leaves is a copy: its ACK is enough.
 */
static bool tqp_is_loose(const struct sock *sk, struct sk_buff *skb)
{
	return unlikely(inet_csk(sk)->icsk_mtup.enabled) && skb_shinfo(skb)->nr_frags &&
	       !skb_zcopy(skb);
}

static int tqp_xmit_data(struct tqp_conn *conn, struct sock *sk, struct sk_buff *skb, u32 payload)
{
	struct tcphdr *th = tcp_hdr(skb);
	u32 old = th->doff * 4 - sizeof(*th), seq = ntohl(th->seq), beside, bytes;
	const struct tqp_msg_rec *rec = tqp_msglog_find(&conn->tx.log, seq), *last;
	u8 stack_opts[TCPOLEN_TSTAMP_ALIGNED];
	struct tcp_bth bth;
	bool stamped;

	if (unlikely(tqp_foreign(conn, seq, payload))) {
		tqp_conn_fail(conn, TCP_QP_REASON_SOCKET_IN_USE);
		return -EINVAL;
	}
	if (!rec)
		return 0;	/* sent before the first message */
	last = tqp_msglog_last(&conn->tx.log, rec, seq, payload);
	if (WARN_ON_ONCE(!last))	/* no option can say what this is */
		return -EINVAL;
	if (last == rec)
		tqp_bth_of(&bth, rec, READ_ONCE(conn->handshake.peer_stock) ? 1 : conn->host_version,
			   tqp_rtr_flags(conn), seq, payload);
	else
		tqp_bth_of_train(&bth, rec, last, tqp_rtr_flags(conn), seq);
	if (tqp_is_loose(sk, skb) && skb_copy_ubufs(skb, GFP_ATOMIC | __GFP_NOWARN))
		return -ENOMEM;
	th = tcp_hdr(skb);
	stamped = tqp_stack_timestamps(th, &bth.tsval, &bth.tsecr);
	beside = tqp_timestamps_beside(conn, &bth, stamped);
	memcpy(stack_opts, th + 1, beside);
	if (conn->icrc && bth.ver == 0)
		bth.flags |= TCP_BTH_F_ICRC;
	tqp_count_segment(conn, old > (stamped ? TCPOLEN_TSTAMP_ALIGNED : 0));
	bytes = tcp_bth_opt_bytes(&bth);
	th = tqp_resize_options(skb, old, beside + bytes);
	if (!th)
		return -ENOMEM;
	memcpy(th + 1, stack_opts, beside);
	tcp_bth_build((u8 *)(th + 1) + beside, &bth);
	/* TCP sets it on every burst, to flush GRO; here it says that there is nothing more to come */
	if (last->flags & TCP_BTH_F_MORE || !tqp_ends_message(last, seq, payload))
		th->psh = 0;
	if (bth.flags & TCP_BTH_F_ICRC)
		tqp_write_icrc(skb, th, bytes);
	tqp_send_check(conn->socket.family->base_af, sk, skb);
	return 0;
}

/* Pure ACKs keep the stack's options; ours follows if there is room. */
static int tqp_xmit_ack(struct tqp_conn *conn, struct sock *sk, struct sk_buff *skb)
{
	struct tcphdr *th = tcp_hdr(skb);
	u32 old = th->doff * 4 - sizeof(*th), new;
	u8 stack_opts[TCP_BTH_OPT_MAX_BYTES];
	struct tcp_bth bth = {
		.ver = 1,
		.opcode = TCP_BTH_OP_ACKNOWLEDGE,
		.ext_bytes = TCP_BTH_EXT4_BYTES,
	};

	if (conn->state == TQP_CONN_DEAD || !conn->handshake.rtr_enabled || th->syn || th->rst)
		return 0;
	bth.flags = tqp_rtr_flags(conn);
	bth.msn = tqp_credit_limit(conn);
	bth.ext4 = tcp_bth_aeth_credits(bth.msn) | TCP_BTH_AETH_TRAINS | TCP_BTH_AETH_WRITE_TRAINS;
	if (!conn->offload.no_mixed)
		bth.ext4 |= TCP_BTH_AETH_MIXED_TRAINS | TCP_BTH_AETH_WRITE_MIXED_TRAINS;
	if (conn->tx.room)
		bth.ext4 |= TCP_BTH_AETH_ROOM;
	new = old + tcp_bth_opt_bytes(&bth);
	if (new > TCP_BTH_OPT_MAX_BYTES)
		return 0;
	/* one that comes from here on is owed its own answer */
	if (bth.flags & TCP_BTH_F_RTR_ACK)
		WRITE_ONCE(conn->handshake.rtr_owed, false);
	memcpy(stack_opts, th + 1, old);
	th = tqp_resize_options(skb, old, new);
	if (!th)
		return -ENOMEM;
	memcpy(th + 1, stack_opts, old);
	tcp_bth_build((u8 *)(th + 1) + old, &bth);
	conn->credit.advertised = bth.msn;
	tqp_send_check(conn->socket.family->base_af, sk, skb);
	return 0;
}

/* Read, or completed by the NIC. */
static u32 tqp_received_seq(const struct tqp_conn *conn)
{
	u32 seq = tcp_sk(conn->sk)->copied_seq;

	return tqp_turn_given(conn) ? seq + tqp_turn_done(conn, seq) : seq;
}

/* What waits for its turn is not acknowledged before, unless it was already. */
static u32 tqp_ack_of_turn(struct tqp_conn *conn, u32 ack)
{
	u32 received = tqp_received_seq(conn);
	u32 limit = after(received, conn->rx.told_ack) ? received : conn->rx.told_ack;

	if (after(ack, limit)) {
		conn->rx.ack_cut = true;
		ack = limit;
	}
	return ack;
}

/* What failed is not acknowledged; the checksum is still to be filled in. */
static void tqp_hold_ack(struct tqp_conn *conn, struct tcphdr *th)
{
	u32 ack = ntohl(th->ack_seq);

	if (!th->ack)
		return;
	if (conn->end.ack_held)
		ack = after(ack, conn->end.ack_limit) ? conn->end.ack_limit : ack;
	else if (conn->state != TQP_CONN_DEAD && conn->qp)
		ack = tqp_ack_of_turn(conn, ack);
	th->ack_seq = htonl(ack);
}

/* For the NIC, which may have let an answer leave before TCP heard of the question. */
static void tqp_acked_late(struct tqp_conn *conn)
{
	struct tqp_offload_shadow *shadow = conn->offload.shadow;

	if (shadow)
		WRITE_ONCE(shadow->late, cpu_to_le32(le32_to_cpu(shadow->late) + 1));
}

/* All that TCP has heard of are whole messages. */
static bool tqp_heard_whole(const struct tqp_conn *conn)
{
	return !conn->rx.msg.active && !before(tqp_received_seq(conn), tcp_sk(conn->sk)->rcv_nxt);
}

/* While TCP hears of what was completed: what it acknowledges by itself may be left to the answer. */
static bool tqp_ack_is_held(const struct tqp_conn *conn)
{
	return conn->end.ack_held || (conn->rx.ack_held && !conn->rx.hears);
}

/*
 * TCP acknowledges at once what is more than a segment.  Where each message is answered the answer
 * does that, and the ACK would be a second packet, which interrupts who waits for the first.
 * Not if the peer may have to know sooner: of a hole, congestion, or the window.
 */
static bool tqp_ack_is_carried(const struct tqp_conn *conn, const struct tcphdr *th)
{
	const struct inet_connection_sock *icsk = inet_csk(conn->sk);
	const struct tcp_sock *tp = tcp_sk(conn->sk);
	u32 owed = tp->rcv_nxt - conn->rx.told_ack;
	u32 most = conn->rx.hears ? TQP_CARRIED_SOON_BYTES : TQP_CARRIED_BYTES;

	if (!tqp_quickack_is_carried(&conn->rx.quickack) || conn->rx.ack_ours || owed - 1 >= most ||
	    (s32)(conn->rx.told_edge - tp->rcv_nxt) < TQP_CARRIED_WINDOW_BYTES)
		return false;
	if (conn->state != TQP_CONN_ACTIVE || !conn->qp || tqp_ack_is_held(conn) ||
	    conn->sk->sk_state != TCP_ESTABLISHED || tqp_rtr_flags(conn))
		return false;
	if (th->fin || th->rst || th->ece || th->cwr || tqp_tells_sack(th) || conn->rx.told_sack ||
	    !RB_EMPTY_ROOT(&tp->out_of_order_queue))
		return false;
	/* an ACK that was delayed is not delayed once more */
	return tcp_jiffies32 == icsk->icsk_ack.lrcvtime && tqp_heard_whole(conn);
}

/* As TCP does with an ACK that may wait for data. */
static void tqp_ack_waits(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;

	conn->rx.carries = true;
	inet_csk_schedule_ack(sk);
	inet_csk_reset_xmit_timer(sk, ICSK_TIME_DACK, inet_csk(sk)->icsk_delack_max, TCP_RTO_MAX);
	tqp_count(conn->dev, TQP_C_rx_carried_acks, 1);
}

static void tqp_ack_leaves(struct tqp_conn *conn, const struct tcphdr *th)
{
	conn->rx.carries = false;
	conn->rx.told_sack = tqp_tells_sack(th);
	conn->rx.told_ack = ntohl(th->ack_seq);
	conn->rx.told_edge = conn->rx.told_ack +
			     (ntohs(th->window) << tcp_sk(conn->sk)->rx_opt.rcv_wscale);
}

int tqp_queue_xmit(struct sock *sk, struct sk_buff *skb, struct flowi *fl)
{
	struct tqp_conn *conn = tqp_conn_of(sk);
	u32 payload = skb->len - tcp_hdr(skb)->doff * 4;
	int err;

	if (!payload && tqp_ack_is_carried(conn, tcp_hdr(skb))) {
		tqp_ack_waits(conn);
		consume_skb(skb);
		return 0;
	}
	if (payload && tqp_rx_is_ahead(conn))
		tqp_quickack_goes_ahead(&conn->rx.quickack, tcp_sk(sk)->tcp_mstamp);
	if (tqp_quickack_left(&conn->rx.quickack, tcp_sk(sk)->tcp_mstamp, payload))
		tqp_acked_late(conn);
	if (unlikely(conn->end.ack_held || conn->rx.ack_held))
		tqp_hold_ack(conn, tcp_hdr(skb));
	tqp_ack_leaves(conn, tcp_hdr(skb));
	err = payload ? tqp_xmit_data(conn, sk, skb, payload) : tqp_xmit_ack(conn, sk, skb);
	if (err) {
		/* as if the network had lost it: TCP sends it again */
		if (conn->qp)
			tqp_count(conn->dev, TQP_C_tx_header_nomem, 1);
		kfree_skb(skb);
		return err;
	}
	return conn->socket.family->base_af->queue_xmit(sk, skb, fl);
}
