// SPDX-License-Identifier: GPL-2.0
/*
 * How much may wait in TCP's queue for a reader that is late, and does not post.
 *
 * TCP makes room for twice what was read in a round trip, and takes for that also what had
 * waited: so a reader that is slower than its peer gets room for tens of MiB (tcp_rmem).
 * What waits there for long is in no cache any more when it is copied, which makes the
 * reader slower still; eight such sockets fill what TCP may have on a small machine, and
 * then packets are dropped.  (6.16 and 6.12.35 leave out what waits as they measure.)
 *
 * A reader that leaves more behind than it reads in two round trips has as much room as one
 * that posts (window.c): 8 MiB, or that much, or what it waits for (SO_RCVLOWAT).  So one that
 * keeps up with a long path, where as much comes at once, is not late.  What the peer was told it
 * may send is always taken, so the room shrinks as that comes.  TCP makes it larger again as
 * it does for any socket.
 */
#include "stream/place.h"

/* window.c's, or its owner's, is left alone. */
static bool tqp_queue_may_bound(const struct sock *sk, const struct tqp_stream *stream)
{
	return !(sk->sk_userlocks & SOCK_RCVBUF_LOCK) && sk->sk_state != TCP_LISTEN &&
	       !(stream->place && stream->place->rcvbuf);
}

static void tqp_queue_shrink(struct sock *sk, const struct tqp_reading *reading)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 room = max3(2 * (u64)reading->per_rtt, (u64)READ_ONCE(sk->sk_rcvlowat),
			(u64)TQP_QUEUE_BYTES);

	if (room >= tcp_win_from_space(sk, sk->sk_rcvbuf))
		return;
	tp->rcvq_space.space = min_t(u64, tp->rcvq_space.space, room / 2);	/* from where it grows */
	WRITE_ONCE(sk->sk_rcvbuf, min_t(u64, tqp_window_narrow(sk, room), sk->sk_rcvbuf));
}

/* By what was seen of it: some calls, a round trip apart at least. */
static bool tqp_queue_is_late(const struct sock *sk, const struct tqp_reading *reading)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return reading->calls == TQP_WINDOW_CALLS && tqp_window_rtt_ns(sk) &&
	       tp->rcv_nxt - tp->copied_seq > 2 * reading->per_rtt;
}

void tqp_queue_bound(struct sock *sk)
{
	struct tqp_stream *stream;

	lock_sock(sk);
	stream = tqp_stream_made(sk);
	if (stream && tqp_queue_may_bound(sk, stream)) {
		tqp_window_measure(sk, &stream->reading);
		if (tqp_queue_is_late(sk, &stream->reading))
			tqp_queue_shrink(sk, &stream->reading);
	}
	release_sock(sk);
}
