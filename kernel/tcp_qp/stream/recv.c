// SPDX-License-Identifier: GPL-2.0
/*
 * recvmsg: TCP's own, in turns.
 *
 * TCP copies what was delivered, waits, and tells of ends, signals and errors.  Before a
 * placed packet it stops as before any that it cannot read.  Then those bytes are given to
 * the reader here, and TCP goes on behind them.
 *
 * Who waits for much (MSG_WAITALL) posts what of its memory is behind that which has come
 * already, copies that, and waits here.  All others call TCP's function; if much waits, the
 * window is looked at (queue.c).
 */
#include <linux/moduleparam.h>
#include "object/compat.h"
#include "stream/place.h"

static bool stream_place = true;
module_param(stream_place, bool, 0644);
MODULE_PARM_DESC(stream_place, "large MSG_WAITALL receives of sockets of ULP tcp_qp_stream are placed by the NIC (default Y)");

static int tqp_recv_base(struct sock *sk, struct msghdr *msg, size_t len, TQP_RECV_FLAGS_PARAMS)
{
	return tqp_stream_base(READ_ONCE(sk->sk_prot))->recvmsg(sk, msg, len, TQP_RECV_FLAGS(flags));
}

/* TCP's own, as a part of a call that began at @begin; it may have nothing to tell. */
static int tqp_recv_part(struct sock *sk, struct msghdr *msg, size_t len, struct tqp_told begin,
			 TQP_RECV_FLAGS_PARAMS)
{
	struct tqp_told was = tqp_told_now(msg);
	int ret;

	tqp_told_set(msg, begin);
	ret = tqp_recv_base(sk, msg, len, TQP_RECV_FLAGS(flags));
	if (msg->msg_controllen == begin.bytes)
		tqp_told_set(msg, was);
	return ret;
}

/* ---- with a post ---- */

/* A call that may post begins: the socket gets a context, unless it has one. */
static void tqp_recv_enter(struct sock *sk)
{
	struct tqp_stream *stream;
	bool due;

	lock_sock(sk);
	stream = tqp_stream_of(sk);
	if (stream)
		tqp_place_renew(stream);
	due = !stream || (!stream->place && (!stream->place_retry_at ||
					     time_after(jiffies, stream->place_retry_at)));
	if (stream && stream->place)
		tqp_edge_call(stream->place);
	release_sock(sk);
	if (!due)
		return;
	tqp_place_make(sk);
	lock_sock(sk);
	stream = tqp_stream_made(sk);	/* also who has no NIC asks once a second */
	if (stream && !stream->place)
		stream->place_retry_at = (jiffies + HZ) ?: 1;
	release_sock(sk);
}

static void tqp_recv_leave(struct sock *sk)
{
	struct tqp_place *place;

	lock_sock(sk);
	place = tqp_place_of(sk);
	if (place)
		tqp_edge_return(place);
	release_sock(sk);
}

static int tqp_recv_open(struct sock *sk, struct tqp_recv *recv, struct msghdr *msg, size_t want)
{
	struct tqp_place *place;
	int err = -EBUSY;

	lock_sock(sk);
	place = tqp_place_of(sk);
	if (place && place->skip)
		place->skip--;
	else if (place && tqp_splice_put_on(sk))
		err = tqp_post_open(sk, place, recv, msg, want);
	release_sock(sk);
	return err;
}

/* Until more has come, or @timeo is over. */
static void tqp_recv_wait(struct sock *sk, long timeo)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);

	add_wait_queue(sk_sleep(sk), &wait);
	release_sock(sk);
	wait_woken(&wait, TASK_UNINTERRUPTIBLE, timeo);
	lock_sock(sk);
	remove_wait_queue(sk_sleep(sk), &wait);
}

/* Does TCP still have to see what was placed for this reader, with nothing else before it? */
static bool tqp_recv_is_due(const struct sock *sk, const struct tqp_place *place,
			    const struct tqp_recv *recv)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return place->owner == recv && !place->rescued && !sk->sk_err &&
	       tp->copied_seq == recv->begin + recv->done && tp->copied_seq == tp->rcv_nxt &&
	       before(tp->copied_seq, place->end) && place->end != place->posted;
}

/*
 * To post costs next to nothing in memory that is pinned already, or in large pages, however
 * little is placed then.  To pin and map a small page costs what copying it costs.
 */
static void tqp_recv_score(struct tqp_place *place, const struct tqp_recv *recv)
{
	if (recv->dropped) {
		place->drops = min_t(u32, place->drops + 1, TQP_PLACE_DROPS_MAX);
		place->skip = (1 << place->drops) - 1;
		return;
	}
	if (recv->placed_to != tqp_recv_seq(recv))
		place->drops = 0;
	if (recv->cheap) {
		place->misses = 0;
	} else if (recv->done == recv->bytes) {
		place->misses = min_t(u32, place->misses + 1, TQP_PLACE_MISSES_MAX);
		place->skip = (1 << place->misses) - 1;
	}
}

/* Takes the post back.  What was placed and is on its way through TCP is this reader's, too. */
static void tqp_recv_close(struct sock *sk, struct tqp_recv *recv, struct msghdr *msg,
			   struct tqp_told begin)
{
	unsigned long until = jiffies + msecs_to_jiffies(TQP_PLACE_SETTLE_MS);
	struct tqp_place *place = recv->place;

	lock_sock(sk);
	if (place->owner == recv) {
		tqp_post_cancel(sk, place);
		while (tqp_post_take(sk, recv, msg, recv->bytes - recv->done, begin) > 0 ||
		       (tqp_recv_is_due(sk, place, recv) && time_before(jiffies, until)))
			if (tqp_recv_is_due(sk, place, recv))
				tqp_recv_wait(sk, max_t(long, until - jiffies, 1));
		tqp_post_close(sk, place);
		tqp_recv_score(place, recv);
		tqp_post_end(place, recv);
	}
	release_sock(sk);
	tqp_place_put(place);
}

/*
 * Somebody between the NIC and TCP drops what has no bytes: a program at the device, a filter
 * that wants payload.  It comes again only after TCP's time is out, and is copied then.  So
 * when the reader is past what he saw on its way, the last of it did not come as placed.
 */
static bool tqp_recv_is_dropped(const struct sock *sk, struct tqp_recv *recv)
{
	const struct tqp_place *place = recv->place;

	if (place->owner != recv || !place->open)
		return false;
	if (after(recv->seen, recv->placed_to))
		return !before(tcp_sk(sk)->copied_seq, recv->seen);
	recv->seen = le32_to_cpu(READ_ONCE(place->post->placed));
	return false;
}

/* What TCP can read, and then what was placed.  Why no more can be had, or 0. */
static int tqp_recv_some(struct sock *sk, struct tqp_recv *recv, struct msghdr *msg, long *timeo,
			 struct tqp_told begin, TQP_RECV_FLAGS_PARAMS)
{
	u64 before = tqp_recv_taken(sk);
	int ret, taken;

	ret = tqp_recv_part(sk, msg, recv->bytes - recv->done, begin,
			    TQP_RECV_FLAGS((flags & ~MSG_WAITALL) | MSG_DONTWAIT));
	lock_sock(sk);
	if (unlikely(tqp_urgent_is_seen(recv->place)))
		tqp_post_close(sk, recv->place);
	recv->done += max(ret, 0);
	taken = tqp_post_take(sk, recv, msg, recv->bytes - recv->done, begin);
	recv->ended = !ret && taken <= 0;
	if (ret > 0 || taken > 0 || (ret == -EFAULT && !taken && tqp_recv_taken(sk) != before))
		ret = 0;
	else if (ret == -EAGAIN)
		ret = tqp_recv_more(sk, timeo);
	recv->left = !ret && !tqp_stream_is_on(sk);
	if (unlikely(tqp_recv_is_dropped(sk, recv))) {
		recv->dropped = true;
		tqp_post_close(sk, recv->place);
	}
	if (recv->place->owner == recv)
		tqp_window_limit(sk, recv->place);
	release_sock(sk);
	return ret;
}

/* Bytes, fewer than were posted if the call has ended, or @recv->left; or why there is none. */
static int tqp_recv_posted(struct sock *sk, struct tqp_recv *recv, struct msghdr *msg, long *timeo,
			   struct tqp_told begin, TQP_RECV_FLAGS_PARAMS)
{
	int ret = 0;

	while (!ret && !recv->ended && !recv->left && recv->done < recv->bytes &&
	       !tqp_recv_at_mark(sk, recv->had + recv->done))
		ret = tqp_recv_some(sk, recv, msg, timeo, begin, TQP_RECV_FLAGS(flags));
	tqp_recv_close(sk, recv, msg, begin);
	if (ret < 0 && recv->done)
		tqp_recv_tell_later(sk, ret);
	return recv->done ?: ret;
}

/* ---- MSG_WAITALL ---- */

/* A limit of time that is the call's, where TCP's function may be called several times. */
static bool tqp_recv_is_timed(const struct sock *sk, int flags)
{
	return (flags & ~(MSG_NOSIGNAL | MSG_CMSG_CLOEXEC)) == MSG_WAITALL &&
	       READ_ONCE(sk->sk_rcvtimeo) != MAX_SCHEDULE_TIMEOUT && tqp_post_may_place(sk);
}

/*
 * TCP's function, which would begin the socket's limit anew, and know nothing of the @had bytes
 * before; @timeo: what is left of the call's.
 */
static int tqp_recv_in_time(struct sock *sk, struct msghdr *msg, size_t len, size_t had,
			    long *timeo, struct tqp_told begin, TQP_RECV_FLAGS_PARAMS)
{
	int done = 0, ret = 0;
	bool ended = false;

	while (ret >= 0 && !ended && done < len && !tqp_recv_at_mark(sk, had + done)) {
		/* Another ULP's waits itself: only that knows for what, in the middle of a record. */
		bool waits = (!had && *timeo == MAX_SCHEDULE_TIMEOUT) || !tqp_stream_is_on(sk);

		ret = tqp_recv_part(sk, msg, len - done, begin,
				    TQP_RECV_FLAGS(waits ? flags :
						   (flags & ~MSG_WAITALL) | MSG_DONTWAIT));
		ended = !ret || waits;
		done += max(ret, 0);
		if (ret == -EAGAIN && !waits) {
			lock_sock(sk);
			ret = tqp_recv_more(sk, timeo);
			release_sock(sk);
		}
	}
	if (ret < 0 && done)
		tqp_recv_tell_later(sk, ret);
	return done ?: ret;
}

/*
 * Did TCP stop, with less than it was asked for, at a placed packet that another reader has taken
 * by now?  @before: what of them was read then.  An end or an error is none that TCP would repeat.
 */
static bool tqp_recv_met_taken(const struct sock *sk, int ret, u64 before)
{
	return (ret > 0 || ret == -EFAULT) && tqp_recv_taken(sk) != before;
}

/* The rest of it, after @done bytes.  @post: as much as possible into memory that is posted. */
static int tqp_recv_all(struct sock *sk, struct msghdr *msg, size_t len, size_t done, bool post,
			struct tqp_told begin, TQP_RECV_FLAGS_PARAMS)
{
	long timeo = sock_rcvtimeo(sk, false);
	int ret = 0, taken;

	while (done < len) {
		size_t want = len - done;
		struct tqp_recv recv;
		u64 before = 0;
		int err = post ? tqp_recv_open(sk, &recv, msg, want) : -EBUSY;

		if (!err) {
			want = recv.bytes;
			recv.had = done;
			ret = tqp_recv_posted(sk, &recv, msg, &timeo, begin, TQP_RECV_FLAGS(flags));
		} else {
			post = err == -EAGAIN;
			if (post)	/* what waits, in parts, so that the window shrinks as it is read */
				want = min3(want, (size_t)recv.queued, (size_t)TQP_PLACE_MIN_BYTES);
			before = tqp_recv_taken(sk);
			ret = tqp_recv_in_time(sk, msg, want, done, &timeo, begin,
					       TQP_RECV_FLAGS(flags));
		}
		done += max(ret, 0);
		if ((ret >= 0 && ret == want) || (!err && recv.left))
			continue;
		taken = tqp_recv_rescued(sk, msg, len - done, begin);
		if (taken < 0 || (!taken && (!err || !tqp_recv_met_taken(sk, ret, before))))
			break;
		done += taken;
	}
	if (ret < 0 && done)
		tqp_recv_tell_later(sk, ret);
	return done ?: ret;
}

/* With a time limit no more than one post holds. */
static bool tqp_recv_may_post(const struct sock *sk, size_t len, int flags)
{
	return len >= TQP_PLACE_MIN_BYTES && len <= INT_MAX &&
	       (flags & ~(MSG_NOSIGNAL | MSG_CMSG_CLOEXEC)) == MSG_WAITALL &&
	       READ_ONCE(stream_place) &&
	       (READ_ONCE(sk->sk_rcvtimeo) == MAX_SCHEDULE_TIMEOUT ||
		len <= TQP_PLACE_POST_BYTES) &&
	       READ_ONCE(tcp_sk(sk)->bytes_received) >= TQP_PLACE_BULK_BYTES;
}

/* TCP has stopped, with nothing, at bad memory or a placed packet of a post that has ended. */
static int tqp_recv_fault(struct sock *sk, struct msghdr *msg, size_t len, TQP_RECV_FLAGS_PARAMS)
{
	struct tqp_told begin = tqp_told_now(msg);
	u64 before;
	int ret;

	do {
		before = tqp_recv_taken(sk);
		ret = tqp_recv_rescued(sk, msg, len, begin) ?:
		      tqp_recv_base(sk, msg, len, TQP_RECV_FLAGS(flags));
	} while (ret == -EFAULT && tqp_recv_taken(sk) != before);
	if (ret == -EFAULT)
		ret = tqp_recv_rescued(sk, msg, len, begin) ?: ret;
	return ret;
}

/*
 * Behind @done bytes: what there is by now, placed or not, and what comes while that is less than
 * SO_RCVLOWAT.  Who gets less than he asked for may take it for all.
 */
static int tqp_recv_on(struct sock *sk, struct msghdr *msg, size_t len, int done,
		       struct tqp_told begin, TQP_RECV_FLAGS_PARAMS)
{
	long timeo = sock_rcvtimeo(sk, flags & MSG_DONTWAIT);
	int target = sock_rcvlowat(sk, 0, len);
	int ret = 1;

	while (ret > 0 && done < len && !tqp_recv_at_mark(sk, done)) {
		ret = tqp_recv_rescued(sk, msg, len - done, begin) ?:
		      tqp_recv_part(sk, msg, len - done, begin,
				    TQP_RECV_FLAGS(flags | MSG_DONTWAIT));
		done += max(ret, 0);
		if (ret == -EAGAIN && done < target && tqp_stream_is_on(sk)) {
			lock_sock(sk);
			ret = tqp_recv_more(sk, &timeo) ?: 1;
			release_sock(sk);
		}
	}
	if (ret < 0)
		tqp_recv_tell_later(sk, ret);
	return done;
}

/* TCP's own, and from where that stops at a placed packet on a copy. */
static int tqp_recv_peek(struct sock *sk, struct msghdr *msg, size_t len, TQP_RECV_FLAGS_PARAMS)
{
	struct tqp_told told = tqp_told_now(msg);
	u32 begin;
	int ret;

	do {
		begin = READ_ONCE(tcp_sk(sk)->copied_seq);
		ret = tqp_recv_base(sk, msg, len, TQP_RECV_FLAGS(flags));
		if ((ret != -EFAULT && (ret <= 0 || ret == len)) || !tqp_post_may_place(sk))
			break;
	} while (!tqp_peek_on(sk, msg, len, flags, begin, told, &ret) && ret == -EFAULT);
	return ret;
}

/* TCP said @ret: may it have stopped at a placed packet?  No lock. */
static bool tqp_recv_may_be_short(const struct sock *sk, int ret, size_t len, int flags)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (ret <= 0 || ret >= len)
		return ret == -EFAULT;
	return flags & MSG_WAITALL || (READ_ONCE(tp->copied_seq) != READ_ONCE(tp->rcv_nxt) &&
				       tqp_post_may_place(sk));
}

static int tqp_stream_recvmsg(struct sock *sk, struct msghdr *msg, size_t len, TQP_RECV_FLAGS_PARAMS)
{
	bool timed = tqp_recv_is_timed(sk, flags), taken;
	struct tqp_told begin = tqp_told_now(msg);
	u64 before = 0;
	int ret;

	if (tqp_recv_may_post(sk, len, flags)) {
		tqp_recv_enter(sk);
		ret = tqp_recv_all(sk, msg, len, 0, true, begin, TQP_RECV_FLAGS(flags));
		tqp_recv_leave(sk);
		return ret;
	}
	if (flags & MSG_PEEK && !(flags & (MSG_OOB | MSG_ERRQUEUE | MSG_SOCK_DEVMEM | MSG_TRUNC)))
		return tqp_recv_peek(sk, msg, len, TQP_RECV_FLAGS(flags));
	if (flags & MSG_WAITALL)
		before = tqp_recv_taken(sk);
	ret = timed ? tqp_recv_all(sk, msg, len, 0, false, begin, TQP_RECV_FLAGS(flags)) :
		      tqp_recv_base(sk, msg, len, TQP_RECV_FLAGS(flags));
	if (unlikely(tqp_queue_is_long(sk)) && !(flags & MSG_PEEK))
		tqp_queue_bound(sk);
	if (likely(timed || !tqp_recv_may_be_short(sk, ret, len, flags)))
		return ret;
	if (flags & (MSG_OOB | MSG_ERRQUEUE | MSG_SOCK_DEVMEM))
		return ret;
	if (!(flags & MSG_WAITALL) || flags & (MSG_DONTWAIT | MSG_TRUNC)) {
		if (ret < 0)
			ret = tqp_recv_fault(sk, msg, len, TQP_RECV_FLAGS(flags));
		if (ret <= 0 || flags & MSG_TRUNC)	/* which stops at none */
			return ret;
		return tqp_recv_on(sk, msg, len, ret, begin, TQP_RECV_FLAGS(flags));
	}
	lock_sock(sk);
	taken = tqp_post_next(sk) || tqp_recv_taken(sk) != before;
	release_sock(sk);
	return taken ? tqp_recv_all(sk, msg, len, max(ret, 0), false, begin,
				    TQP_RECV_FLAGS(flags)) : ret;
}

void tqp_stream_recv_ops(struct proto *prot)
{
	prot->recvmsg = tqp_stream_recvmsg;
}
