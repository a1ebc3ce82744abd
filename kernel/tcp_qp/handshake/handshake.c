// SPDX-License-Identifier: GPL-2.0
/*
 * rtr: both ends say that their QP can receive before either sends to it.
 * Credits: how many receives the peer has posted.
 *
 * Both ride on pure ACKs, which TCP does not repeat: rtr is repeated by a
 * timer until acknowledged, credits are hints with a probe behind them.
 */
#include "handshake/handshake.h"
#include "offload/offload.h"
#include "tx/tx.h"
#include "wire/credit.h"

/* user/libtcpqp/src/userspace/frames/frame.hpp */
enum {
	TQP_STOCK_HELLO_BYTES = 24,
	TQP_STOCK_HELLO_FLAGS_AT = 16,
	TQP_STOCK_HELLO_OPTION = 1 << 1,	/* the stock end also speaks tcp_bth */
	TQP_STOCK_HELLO_WANTS = 1 << 2,		/* and wants to speak it here */
};

void tqp_send_ack(struct tqp_conn *conn)
{
	conn->rx.ack_ours = true;
	__tcp_send_ack(conn->sk, tcp_sk(conn->sk)->rcv_nxt, 0);
	conn->rx.ack_ours = false;
}

void tqp_rtr_start(struct tqp_conn *conn)
{
	sock_owned_by_me(conn->sk);
	if (conn->state == TQP_CONN_DEAD)
		return;
	WRITE_ONCE(conn->handshake.rtr_enabled, true);	/* the hook looks at it without the lock */
	tqp_send_ack(conn);
	if (conn->qp)
		tqp_count(conn->dev, TQP_C_rtr_sent, 1);
	tqp_queue_delayed(conn, &conn->handshake.work, conn->handshake.delay_ms);
}

static bool tqp_rtr_expired(const struct tqp_conn *conn)
{
	return conn->handshake.deadline && !READ_ONCE(conn->handshake.rtr_seen) &&
	       time_after(jiffies, conn->handshake.deadline);
}

static void tqp_rtr_step(struct tqp_conn *conn)
{
	if (tqp_rtr_expired(conn)) {
		tqp_count(conn->dev, TQP_C_rtr_timeouts, 1);
		tqp_conn_fail(conn, TCP_QP_REASON_NO_PEER_QP);
		return;
	}
	tqp_tx_run(conn);
	tqp_count(conn->dev, TQP_C_rtr_received, READ_ONCE(conn->handshake.rtr_owed));
	tqp_send_ack(conn);
	tqp_count(conn->dev, TQP_C_rtr_sent, 1);
	/* who acknowledges ours, and says none, is waited for until the deadline */
	if (READ_ONCE(conn->handshake.rtr_acked) &&
	    (READ_ONCE(conn->handshake.rtr_seen) || !conn->handshake.deadline))
		return;
	conn->handshake.delay_ms = min(conn->handshake.delay_ms * 2, (u32)TQP_RTR_LAST_MS);
	tqp_queue_delayed(conn, &conn->handshake.work, conn->handshake.delay_ms);
}

/* Repeat rtr, and answer the peer's, until both sides know. */
void tqp_rtr_work(struct work_struct *work)
{
	struct tqp_conn *conn = container_of(to_delayed_work(work), struct tqp_conn, handshake.work);

	if (tqp_lock_or_defer(conn, TQP_DEFERRED_RTR)) {
		if (conn->state != TQP_CONN_DEAD && conn->qp)
			tqp_rtr_step(conn);
		release_sock(conn->sk);
	}
	tqp_conn_put(conn);
}

/* Bring the handshake work forward: there is something to answer. */
static void tqp_rtr_answer(struct tqp_conn *conn)
{
	if (tqp_conn_tryget(conn))
		tqp_queue_now(conn, &conn->handshake.work);
}

void tqp_peer_is_ready(struct tqp_conn *conn)
{
	if (!xchg(&conn->handshake.rtr_seen, true))
		tqp_conn_notify(conn);
}

/*
 * An rtr alone may come from a QP that has not heard ours, though one had: another, which took its
 * place.  That one can have sent nothing, so there is an end to telling each other once more, also
 * where the packets of one have overtaken each other.  A stock end says its rtr but once.
 */
static bool tqp_peer_is_another(const struct tqp_conn *conn, u8 flags)
{
	return READ_ONCE(conn->handshake.rtr_acked) && !(flags & TCP_BTH_F_RTR_ACK) &&
	       !READ_ONCE(conn->rx.started) && !READ_ONCE(conn->handshake.peer_stock);
}

void tqp_peer_flags(struct tqp_conn *conn, u8 flags)
{
	if (!READ_ONCE(conn->handshake.rtr_enabled) || READ_ONCE(conn->state) == TQP_CONN_DEAD)
		return;
	if (flags & TCP_BTH_F_RTR_ACK)
		WRITE_ONCE(conn->handshake.rtr_acked, true);
	if (!(flags & TCP_BTH_F_RTR))
		return;
	if (tqp_peer_is_another(conn, flags))
		WRITE_ONCE(conn->handshake.rtr_acked, false);
	WRITE_ONCE(conn->handshake.rtr_owed, true);
	tqp_peer_is_ready(conn);
	tqp_rtr_answer(conn);
}

/* Each ACK says it again: mostly nothing is written. */
static void tqp_peer_says(u32 aeth, u32 bit, bool *said)
{
	if (aeth & bit && !READ_ONCE(*said))
		WRITE_ONCE(*said, true);
}

void tqp_peer_credits(struct tqp_conn *conn, u32 aeth)
{
	u16 limit = aeth, old = READ_ONCE(conn->credit.peer_limit);
	struct tqp_handshake *peer = &conn->handshake;

	if (READ_ONCE(conn->state) == TQP_CONN_DEAD)
		return;
	tqp_peer_says(aeth, TCP_BTH_AETH_TRAINS, &peer->peer_trains);
	tqp_peer_says(aeth, TCP_BTH_AETH_WRITE_TRAINS, &peer->peer_write_trains);
	tqp_peer_says(aeth, TCP_BTH_AETH_MIXED_TRAINS, &peer->peer_mixed_trains);
	tqp_peer_says(aeth, TCP_BTH_AETH_WRITE_MIXED_TRAINS, &peer->peer_write_mixed_trains);
	tqp_peer_says(aeth, TCP_BTH_AETH_ROOM, &peer->peer_room);
	if (READ_ONCE(conn->credit.known) && tqp_credit_ahead(limit, old) <= 0)
		return;
	WRITE_ONCE(conn->credit.peer_limit, limit);
	WRITE_ONCE(conn->credit.known, true);
	smp_mb();		/* pairs with tqp_tx_credit(): it sees the limit, or we see that it waits */
	if (tqp_tx_waits(&conn->tx, TQP_TX_WAIT_CREDIT))
		tqp_tx_kick(conn);
}

/*
 * A stock end reads ver 1, SENDs only, and leaves timestamps to its TCP: to
 * fold them would take them from it.  Set before rtr_seen, so that no message
 * goes out another way; later no segment that TCP has not taken may change that.
 */
void tqp_peer_is_stock(struct tqp_conn *conn)
{
	if (READ_ONCE(conn->handshake.rtr_enabled) && !READ_ONCE(conn->handshake.rtr_seen) &&
	    !READ_ONCE(conn->handshake.peer_stock))
		WRITE_ONCE(conn->handshake.peer_stock, true);
}

u32 tqp_stock_hello(struct sock *sk, u32 seq, u32 bytes)
{
	static const u8 known[TQP_STOCK_HELLO_BYTES] = { 0x51, 0x50, 1, 1 };
	u8 hello[TQP_STOCK_HELLO_BYTES];
	struct sk_buff *skb;
	u32 off;

	sock_owned_by_me(sk);
	if (bytes < sizeof(hello))
		return 0;
	seq += bytes - sizeof(hello);
	skb_queue_walk(&sk->sk_receive_queue, skb) {
		off = seq - TCP_SKB_CB(skb)->seq;
		if (off < skb->len)
			break;
	}
	if (skb == (struct sk_buff *)&sk->sk_receive_queue ||
	    skb_copy_bits(skb, off, hello, sizeof(hello)) ||
	    !(hello[TQP_STOCK_HELLO_FLAGS_AT] & TQP_STOCK_HELLO_OPTION))
		return 0;
	hello[TQP_STOCK_HELLO_FLAGS_AT] &= ~(TQP_STOCK_HELLO_OPTION | TQP_STOCK_HELLO_WANTS);
	return memcmp(hello, known, sizeof(known)) ? 0 : sizeof(hello);
}

void tqp_peer_acknowledge(struct tqp_conn *conn, u32 aeth)
{
	sock_owned_by_me(conn->sk);
	WRITE_ONCE(conn->handshake.peer_stock, true);
	conn->host_version = 1;
	conn->wire_version = 1;
	if (conn->icrc) {	/* ver 0 alone has it */
		tqp_conn_fail(conn, TCP_QP_REASON_PEER_STOCK_ICRC);
		return;
	}
	tqp_peer_credits(conn, (u16)aeth);	/* a stock end takes no trains */
	if (!READ_ONCE(conn->handshake.rtr_seen))		/* it came before we attached: no hook saw it */
		tqp_peer_flags(conn, TCP_BTH_F_RTR);
}

u16 tqp_credit_limit(struct tqp_conn *conn)
{
	const struct tqp_qp *qp = conn->qp;
	u32 posted = 0;

	tqp_turn_sync(conn);
	if (qp && qp->srq)	/* others may take them: credits are hints */
		posted = tqp_srq_posted(qp->srq);
	else if (qp)
		posted = tqp_ring_posted(qp->rq, qp->rq->index);
	return tqp_credit_limit_of(conn->rx.next.untagged, posted);
}

/*
 * Pure ACKs carry credits by themselves.  One is owed only when the peer may
 * soon stop: the credit it knows of is used up, or less than what is new.
 */
void tqp_credit_update(struct tqp_conn *conn)
{
	s16 left, gained;

	sock_owned_by_me(conn->sk);
	if (conn->state == TQP_CONN_DEAD || !conn->qp || !conn->handshake.rtr_enabled)
		return;
	gained = tqp_credit_ahead(tqp_credit_limit(conn), conn->credit.advertised);
	left = tqp_credit_ahead(conn->credit.advertised, conn->rx.next.untagged);
	if (gained > 0 && gained > left)
		tqp_send_ack(conn);
}

/*
 * No credit for a while: send one message all the same, TCP's window is the
 * bound.  Or memory was short: try again.
 */
static void tqp_probe(struct tqp_conn *conn)
{
	struct tqp_credit *credit = &conn->credit;

	if (!tqp_tx_waits(&conn->tx, TQP_TX_WAIT_MEMORY)) {
		credit->probe_allowed = true;
		credit->probe_delay_ms = min(credit->probe_delay_ms * 2, (u32)TQP_PROBE_LAST_MS);
		tqp_count(conn->dev, TQP_C_tx_credit_probes, 1);
	}
	tqp_tx_run(conn);
}

void tqp_probe_work(struct work_struct *work)
{
	struct tqp_conn *conn = container_of(to_delayed_work(work), struct tqp_conn, credit.probe_work);

	if (tqp_lock_or_defer(conn, TQP_DEFERRED_PROBE)) {
		if (conn->state == TQP_CONN_ACTIVE && conn->qp &&
		    tqp_tx_waits(&conn->tx, TQP_TX_WAIT_MEMORY | TQP_TX_WAIT_CREDIT))
			tqp_probe(conn);
		release_sock(conn->sk);
	}
	tqp_conn_put(conn);
}
