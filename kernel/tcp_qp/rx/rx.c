// SPDX-License-Identifier: GPL-2.0
/*
 * TCP's receive queue, read in order, into receive WQEs.
 *
 * Runs with the socket lock held, mostly in softirq from sk_data_ready.  The
 * stream is a sequence of messages without gaps; each skb's mapping says which
 * one it belongs to (message.c), or that it is a train of them.
 */
#include "handshake/handshake.h"
#include "memory/memory.h"
#include "offload/offload.h"
#include "rx/rx.h"
#include "tx/tx.h"
#include "wire/credit.h"

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
	u32 at = seq - train->all.start_seq, length = train->all.length, place, count;

	/* the train may be of before, and this a mixed one: then it has no such length, or no byte here */
	if (train->all.opcode != TCP_BTH_OP_WRITE_TRAIN || !tqp_in_train(train, seq) ||
	    conn->rx.msg.active || at % length)
		return 0;
	place = at / length;
	if ((u16)(train->all.msn + place) != conn->rx.next.write)
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

/*
 * What the turn took, of bytes and of messages: of those without a number an skb has one at most,
 * and of a train's TCP_BTH_TRAIN_MAX_MESSAGES, since it is of one train.
 */
static u64 tqp_rx_cost(const struct tqp_conn *conn, u32 bytes, const struct tqp_rx_numbers *before)
{
	u64 messages = tqp_rx_numbers_since(&conn->rx.next, before);

	return bytes + (messages + 1) * TQP_RX_MESSAGE_BYTES;
}

void tqp_rx_hold_ack(struct tqp_conn *conn)
{
	if (conn->rx.ack_held)
		return;
	conn->rx.ack_cut = false;
	conn->rx.ack_held = true;
}

void tqp_rx_yield(struct tqp_conn *conn)
{
	tqp_rx_hold_ack(conn);
	conn->rx.yielded = true;
	tqp_share_task(conn);
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

/* Most loops end at an empty queue: no call for that. */
static struct sk_buff *tqp_rx_next(struct sock *sk, u32 *off)
{
	return skb_queue_empty(&sk->sk_receive_queue) ? NULL :
	       tcp_recv_skb(sk, tcp_sk(sk)->copied_seq, off);
}

/*
 * As tcp_read_done().  For each second short segment that was read TCP sends an ACK, since who
 * typed may wait for it; of a message's sender we know.  And it acknowledges all that it has.
 */
static void tqp_rx_read_done(struct tqp_conn *conn, u32 bytes)
{
	const struct tcp_sock *tp = tcp_sk(conn->sk);

	if (unlikely(tp->copied_seq + bytes != tp->rcv_nxt))
		tqp_rx_hold_ack(conn);
	if (tqp_quickack_may_wait(&conn->rx.quickack))
		inet_csk(conn->sk)->icsk_ack.pending &= ~(ICSK_ACK_PUSHED | ICSK_ACK_PUSHED2);
	tcp_read_done(conn->sk, bytes);
}

/*
 * The NIC may have completed what comes next: then it is in its place, and told.  Else
 * the turn is taken, and the next look finds the rest.  *@stop: not now.
 */
static u32 tqp_rx_completed(struct tqp_conn *conn, bool *stop)
{
	struct tcp_sock *tp = tcp_sk(conn->sk);
	u32 bytes = min(tqp_turn_done(conn, tp->copied_seq), tp->rcv_nxt - tp->copied_seq);

	*stop = false;
	if (bytes) {
		tqp_turn_sync(conn);
		tqp_rx_account(conn, bytes, true);
		tqp_rx_read_done(conn, bytes);
		tqp_turn_read(conn);
	} else if (!tqp_turn_take(conn)) {
		*stop = true;
		tqp_queue_delayed(conn, &conn->rx.work, TQP_STALL_FIRST_MS);
	}
	return bytes;
}

/* The NIC may go on, if it can complete and nothing is left for us. */
static void tqp_rx_give_turn(struct tqp_conn *conn)
{
	const struct tqp_rx *rx = &conn->rx;

	if (conn->offload.turn.state != TQP_TURN_OURS || conn->offload.turn.over)
		return;
	if (!rx->started || rx->msg.active || rx->wqe.valid || rx->ack_held ||
	    conn->state != TQP_CONN_ACTIVE || !skb_queue_empty(&conn->sk->sk_receive_queue) ||
	    conn->sk->sk_shutdown & RCV_SHUTDOWN)
		return;
	tqp_turn_give(conn, tcp_sk(conn->sk)->copied_seq);
}

/* The NIC may let an answer be seen before TCP hears of it, if no completion is expected to come first. */
static void tqp_rx_tell_awaits(struct tqp_conn *conn)
{
	struct tqp_offload_shadow *shadow = conn->offload.shadow;

	if (!shadow)
		return;
	WRITE_ONCE(shadow->awaits, cpu_to_le32(conn->tx.signaled != READ_ONCE(conn->tx.reported)));
	/* both ends' sends complete late then */
	WRITE_ONCE(shadow->later, cpu_to_le32(conn->tx.room && READ_ONCE(conn->handshake.peer_room)));
}

static void tqp_rx_loop(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;
	struct tcp_sock *tp = tcp_sk(sk);
	s64 turn = TQP_RX_TURN_BYTES;
	struct tqp_rx_numbers before;
	struct sk_buff *skb;
	u32 off, bytes;
	bool stop;

	conn->rx.yielded = false;

	while (conn->state != TQP_CONN_DEAD && conn->qp &&
	       (skb = tqp_rx_next(sk, &off))) {
		if (unlikely(tp->urg_data)) {
			tqp_count(conn->dev, TQP_C_urgent_refused, 1);
			tqp_conn_fail(conn, TCP_QP_REASON_URGENT);
			return;
		}
		if (off >= skb->len) {		/* a bare FIN */
			conn->rx.eof = true;
			return;
		}
		if (unlikely(skb->decrypted && conn->engine != TCP_QP_ENGINE_OFFLOAD)) {
			tqp_hold_acks(conn, tp->copied_seq);
			tqp_conn_fail(conn, TCP_QP_REASON_EARLIER_QP);
			return;
		}
		if (unlikely(!skb_frags_readable(skb))) {
			tqp_conn_fail(conn, TCP_QP_REASON_DEVICE_QUEUE);
			return;
		}
		before = conn->rx.next;
		if (tqp_turn_given(conn)) {
			bytes = tqp_rx_completed(conn, &stop);
		} else {
			bytes = tqp_rx_skb(conn, skb, off, &stop);
			if (bytes)
				tqp_rx_read_done(conn, bytes);
		}
		if (conn->offload.shadow)	/* after the copy: the switch places later WRITEs now */
			smp_store_release(&conn->offload.shadow->consumed, cpu_to_le32(tp->copied_seq));
		if (stop)
			return;
		turn -= tqp_rx_cost(conn, bytes, &before);
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
	if (tqp_credit_ahead(conn->credit.advertised, conn->rx.next.untagged) > 0 || conn->rx.stalled) {
		conn->rx.watch_ms = TQP_STALL_FIRST_MS;
		return;
	}
	if (conn->rx.watch_ms > TQP_STALL_LAST_MS)
		return;
	tqp_queue_delayed(conn, &conn->rx.work, conn->rx.watch_ms);
}

/* Nor is there what the NIC has completed and TCP has not heard of: its sender is to be told that it came. */
static bool tqp_rx_drained(const struct tqp_conn *conn)
{
	return skb_queue_empty(&conn->sk->sk_receive_queue) &&
	       !(tqp_turn_given(conn) && tqp_turn_done(conn, tcp_sk(conn->sk)->copied_seq));
}

/* Messages have ended: does the peer wait for their ACK?  TCP's fast path has decided on it before we were called. */
static void tqp_rx_quick_ack(struct tqp_conn *conn)
{
	const struct tcp_sock *tp = tcp_sk(conn->sk);
	u8 slot = tqp_quickack_slot(conn->rx.msg.kind, conn->rx.msg.length);

	if (!tqp_quickack_end(&conn->rx.quickack, slot, tp->tcp_mstamp, tcp_min_rtt(tp),
			      inet_csk_ack_scheduled(conn->sk)))
		return;
	tqp_send_ack(conn);
	tqp_count(conn->dev, TQP_C_rx_quick_acks, 1);
}

/*
 * TCP takes the backlog for used memory until the last of it was received, and may
 * have closed the window for that alone.  Who reads by calls looks again with the
 * next one; here all may be in its place already, and nobody would.
 */
void tqp_rx_tell_window(struct tqp_conn *conn)
{
	const struct sock *sk = conn->sk;
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 now = tcp_receive_window(tp);
	int space;

	conn->rx.window_late = false;
	if (2 * now > tp->window_clamp || sk->sk_shutdown & RCV_SHUTDOWN)
		return;
	space = tcp_space(sk);
	/* as TCP: not in small steps, and at least twice what the peer has */
	if (space < tcp_full_space(sk) >> 4 || space < inet_csk(sk)->icsk_ack.rcv_mss)
		return;
	if (min_t(u32, space, tp->rcv_ssthresh) >= max(2 * now, 1U))
		tqp_send_ack(conn);
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
	tqp_turn_tell(conn);
	tqp_rx_tell_awaits(conn);
	tqp_rx_release_ack(conn);
	tqp_rx_give_turn(conn);
	if (conn->state == TQP_CONN_DEAD)
		return;
	if (!sock_owned_by_user_nocheck(sk))	/* else tqp_release_cb() does both */
		tqp_tx_answer(conn);
	else if (conn->rx.seq != before)
		conn->rx.window_late = true;
	if (conn->state == TQP_CONN_DEAD)
		return;
	if (conn->rx.started)
		tqp_rx_watch(conn);
	if (unlikely(conn->rx.carries && conn->rx.msg.active))
		tqp_send_ack(conn);	/* half a message: its sender may wait for the ACK of the one before */
	/* nobody waits for the acknowledgement of LENGTHS */
	if (conn->rx.seq != before && !conn->rx.msg.active &&
	    conn->rx.msg.kind != TCP_BTH_KIND_LENGTHS)
		tqp_rx_quick_ack(conn);
	if (!(sk->sk_shutdown & RCV_SHUTDOWN))
		return;
	if (conn->rx.eof || tqp_rx_drained(conn)) {
		tqp_count(conn->dev, TQP_C_peer_closes, 1);
		/* a RST may come in the middle of a message, a FIN not */
		tqp_conn_fail(conn, conn->rx.msg.active && conn->rx.msg.done &&
				    sk->sk_state != TCP_CLOSE ?
				    TCP_QP_REASON_PROTOCOL : TCP_QP_REASON_PEER_CLOSED);
	} else if (sk->sk_state == TCP_CLOSE && !conn->rx.yielded) {
		tqp_conn_fail(conn, TCP_QP_REASON_PEER_CLOSED);	/* the rest waits for a receive */
	}
}

bool tqp_rx_goes_on(const struct tqp_conn *conn)
{
	return conn->state != TQP_CONN_DEAD && conn->qp && conn->handshake.rtr_enabled &&
	       conn->rx.yielded;
}

/*
 * librxe rings no doorbell for receives.  While data waits for one we look
 * again, ever more slowly; a doorbell or a new segment looks at once.
 */
static void tqp_rx_look_again(struct tqp_conn *conn)
{
	conn->rx.watch_ms *= 2;
	tqp_credit_update(conn);
	tqp_rx_run(conn);
	if (conn->rx.stalled && conn->state != TQP_CONN_DEAD && conn->qp) {
		conn->rx.stall_ms = min(conn->rx.stall_ms * 2, (u32)TQP_STALL_LAST_MS);
		tqp_queue_delayed(conn, &conn->rx.work, conn->rx.stall_ms);
	}
}

void tqp_rx_work(struct work_struct *work)
{
	struct tqp_conn *conn = container_of(to_delayed_work(work), struct tqp_conn, rx.work);

	if (tqp_lock_or_defer(conn, TQP_DEFERRED_RX)) {
		tqp_rx_look_again(conn);
		release_sock(conn->sk);
	}
	tqp_conn_put(conn);
}
