// SPDX-License-Identifier: GPL-2.0
/*
 * How much may wait in TCP's queue while readers post.
 *
 * What waits there when a call begins is copied, and nothing can be posted for a call that
 * finds all it wants.  TCP makes room for twice what was ever read in a round trip, tens of
 * MiB where it may.  A reader that was held up once finds as much waiting, copies, which
 * takes longer than to place, and so never gets to the end of it.  Hence sk_rcvbuf, from
 * one call that posts to the next, has room for two of the largest posts, or for what is
 * read in two round trips if that is more.  What the peer was told it may send is always
 * taken, so it shrinks as that comes.
 *
 * Who finds all it wants none the less drains the queue: the peer may send little until less
 * waits than a post holds.  It then stands still for a round trip, so that is rare.
 *
 * A socket whose posts did not pay tries one call in some.  These calls count here as all do:
 * with much waiting they would post nothing, and so never find that posts pay by now.
 *
 * Nobody posts for a second: it is again what TCP, or its owner, made it.
 */
#include <linux/math64.h>
#include <linux/workqueue.h>
#include "object/tqp.h"
#include "stream/place.h"

static void tqp_window_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(tqp_window_idle, tqp_window_work);

u64 tqp_window_rtt_ns(const struct sock *sk)
{
	return (u64)(tcp_sk(sk)->rcv_rtt_est.rtt_us >> 3) * NSEC_PER_USEC;
}

static void tqp_window_watch(void)
{
	queue_delayed_work(tqp_wq, &tqp_window_idle, msecs_to_jiffies(TQP_WINDOW_IDLE_MS));
}

/* By no less than a round trip: in a shorter time what had waited may have been read. */
void tqp_window_measure(const struct sock *sk, struct tqp_reading *reading)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 now = ktime_get_ns(), ns = now - reading->at;
	u64 rtt = tqp_window_rtt_ns(sk);
	u32 bytes = tp->copied_seq - reading->seq;
	s64 per_rtt;

	sock_owned_by_me(sk);
	if (ns < rtt)
		return;
	if (reading->at) {
		per_rtt = mul_u64_u64_div_u64(bytes, rtt, max_t(u64, ns, 1));
		reading->per_rtt += (per_rtt - reading->per_rtt) / TQP_WINDOW_CALLS;
		reading->calls = min(reading->calls + 1, TQP_WINDOW_CALLS);
	}
	reading->seq = tp->copied_seq;
	WRITE_ONCE(reading->at, now);
}

void tqp_window_drain(const struct sock *sk, struct tqp_place *place, bool full)
{
	u64 now;

	sock_owned_by_me(sk);
	if (!full || place->draining) {
		place->draining &= full;
		return;
	}
	now = ktime_get_ns();
	if (now - place->drained_at < TQP_WINDOW_DRAIN_RTTS * tqp_window_rtt_ns(sk))
		return;
	place->drained_at = now;
	place->draining = true;
}

/* What is there, and what the peer was told it may send. */
static u64 tqp_window_held(const struct sock *sk)
{
	return (u64)atomic_read(&sk->sk_rmem_alloc) + READ_ONCE(sk->sk_backlog.len) +
	       tcp_space_from_win(sk, tcp_receive_window(tcp_sk(sk)));
}

u64 tqp_window_narrow(struct sock *sk, u64 room)
{
	/* Else an ACK that goes before the reader runs offers what has come once more. */
	tcp_sk(sk)->rcv_ssthresh = min_t(u64, tcp_sk(sk)->rcv_ssthresh, room);
	return max_t(u64, tcp_space_from_win(sk, room), tqp_window_held(sk));
}

/*
 * TCP takes for the clamp what sk_rcvbuf has room for as it is then: when it looks anew how much
 * memory segments take, and when it makes that larger.  Ours goes by its own, else the window
 * would stay as small for good: TCP makes no clamp larger while its buffer is as large as may be.
 */
static void tqp_window_clamp(struct sock *sk, struct tqp_place *place)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 clamp = tp->window_clamp;

	if (place->rcvbuf && clamp != place->clamp &&	/* TCP sets it within this, its owner anywhere */
	    clamp >= tcp_win_from_space(sk, place->narrowed) &&
	    clamp <= tcp_win_from_space(sk, sk->sk_rcvbuf))
		WRITE_ONCE(tp->window_clamp, max_t(u32, clamp, tcp_win_from_space(sk, place->rcvbuf)));
	place->clamp = tp->window_clamp;
}

void tqp_window_limit(struct sock *sk, struct tqp_place *place)
{
	u64 room;

	sock_owned_by_me(sk);
	if (sk->sk_userlocks & SOCK_RCVBUF_LOCK) {
		WRITE_ONCE(place->rcvbuf, 0);
		return;
	}
	tqp_window_clamp(sk, place);
	/* TCP makes it larger at times, and never smaller. */
	if (place->rcvbuf < sk->sk_rcvbuf) {
		WRITE_ONCE(place->rcvbuf, sk->sk_rcvbuf);
		tqp_window_watch();
	}
	room = place->draining ? TQP_PLACE_POST_BYTES / 4 :
				 2 * max_t(u64, TQP_PLACE_POST_BYTES, place->reading.per_rtt);
	tqp_edge_keep(sk, place);
	place->narrowed = place->rcvbuf;
	if (room < tcp_win_from_space(sk, place->rcvbuf))
		place->narrowed = min_t(u64, tqp_window_narrow(sk, room), place->rcvbuf);
	WRITE_ONCE(sk->sk_rcvbuf, place->narrowed);
}

/*
 * TCP looks whether there is news for the peer when somebody reads.  Nobody may, and a peer that
 * found the window shut would go on only when it asks, at ever longer intervals.
 */
static void tqp_window_tell(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 room = min_t(u32, max(tcp_space(sk), 0), tp->rcv_ssthresh);

	if ((1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_FIN_WAIT1 | TCPF_FIN_WAIT2) &&
	    !(sk->sk_shutdown & RCV_SHUTDOWN) && room && room >= 2 * tcp_receive_window(tp))
		__tcp_send_ack(sk, tp->rcv_nxt, 0);
}

void tqp_window_free(struct sock *sk, struct tqp_place *place)
{
	sock_owned_by_me(sk);
	if (!(sk->sk_userlocks & SOCK_RCVBUF_LOCK)) {
		tqp_window_clamp(sk, place);
		if (place->rcvbuf > sk->sk_rcvbuf) {
			WRITE_ONCE(sk->sk_rcvbuf, place->rcvbuf);
			tqp_window_tell(sk);
		}
	}
	WRITE_ONCE(place->rcvbuf, 0);
	/* TCP's queue may fill now, and the round trips that it measures meanwhile are long. */
	place->drained_at = 0;
}

/* ---- nobody posts any more ---- */

static bool tqp_window_is_idle(struct tqp_place *place, void *more)
{
	u64 idle = ktime_get_ns() - max(READ_ONCE(place->reading.at), place->held_at);

	if (!READ_ONCE(place->rcvbuf))
		return false;
	*(bool *)more = true;
	return idle >= TQP_WINDOW_IDLE_MS * NSEC_PER_MSEC;
}

/* Whose lock somebody has is not idle, and nobody waits for him: that may be for as long as he likes. */
static void tqp_window_free_idle(struct sock *sk, struct tqp_place *place)
{
	local_bh_disable();
	bh_lock_sock(sk);
	if (sock_owned_by_user(sk))
		place->held_at = ktime_get_ns();
	else
		tqp_window_free(sk, place);
	bh_unlock_sock(sk);
	local_bh_enable();
}

static void tqp_window_work(struct work_struct *work)
{
	struct tqp_place *place;
	bool more = false;
	struct sock *sk;

	while ((place = tqp_place_find(tqp_window_is_idle, &more, &sk))) {
		more = false;
		if (sk) {
			tqp_window_free_idle(sk, place);
			sock_put(sk);
		} else {
			WRITE_ONCE(place->rcvbuf, 0);
		}
		tqp_place_put(place);
	}
	if (more)
		tqp_window_watch();
}

void tqp_window_exit(void)
{
	cancel_delayed_work_sync(&tqp_window_idle);
}
