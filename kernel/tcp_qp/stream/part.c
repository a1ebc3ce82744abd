// SPDX-License-Identifier: GPL-2.0
/*
 * What stands between two parts of a call (recv.c): placed bytes of which the reader gets a copy,
 * a wait, an urgent byte, an error that is told later.
 */
#include "stream/place.h"

void tqp_recv_tell_later(struct sock *sk, int err)
{
	switch (err) {
	case -EAGAIN:
	case -EINTR:
	case -ERESTARTSYS:
	case -EFAULT:
	case -ENOTCONN:
	case -EPIPE:	/* disconnected: the next call may be of another connection */
		return;
	}
	lock_sock(sk);
	if (!sk->sk_err)
		WRITE_ONCE(sk->sk_err, -err);
	release_sock(sk);
}

int tqp_recv_rescued(struct sock *sk, struct msghdr *msg, size_t bytes, struct tqp_told begin)
{
	int taken;

	lock_sock(sk);
	taken = tqp_post_take(sk, NULL, msg, bytes, begin);
	release_sock(sk);
	return taken;
}

u64 tqp_recv_taken(const struct sock *sk)
{
	const struct tqp_stream *stream;
	u64 taken = 0;

	rcu_read_lock();
	stream = tqp_stream_rcu(sk);
	if (stream)
		taken = READ_ONCE(stream->placed_bytes) + READ_ONCE(stream->rescued_bytes);
	rcu_read_unlock();
	return taken;
}

int tqp_recv_more(struct sock *sk, long *timeo)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (signal_pending(current))
		return *timeo ? sock_intr_errno(*timeo) : -EAGAIN;
	if (tp->copied_seq != tp->rcv_nxt || sk->sk_err || sk->sk_shutdown & RCV_SHUTDOWN ||
	    sk->sk_state == TCP_CLOSE || sock_flag(sk, SOCK_DONE))
		return 0;
	if (!*timeo)
		return -EAGAIN;
	return min(sk_wait_data(sk, timeo, skb_peek_tail(&sk->sk_receive_queue)), 0);
}

bool tqp_recv_at_mark(struct sock *sk, size_t done)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	bool at_mark;

	if (!done || likely(!READ_ONCE(tp->urg_data)))
		return false;
	lock_sock(sk);
	at_mark = tp->urg_data && tp->urg_seq == tp->copied_seq;
	release_sock(sk);
	return at_mark;
}
