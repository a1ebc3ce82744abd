// SPDX-License-Identifier: GPL-2.0
/*
 * recvmsg with MSG_PEEK: TCP's own, and from where that stops at a placed packet on a copy.
 *
 * TCP's would stop there for as long as nobody reads that packet, so who PEEKs until there is
 * as much as he wants would never see it.  A PEEK takes the post from its reader.
 */
#include "stream/place.h"

static struct sk_buff *tqp_peek_packet(struct sock *sk, u32 seq, u32 *offset)
{
	struct sk_buff *skb;

	if (sk->sk_state == TCP_LISTEN)
		return NULL;
	skb_queue_walk(&sk->sk_receive_queue, skb) {
		*offset = seq - TCP_SKB_CB(skb)->seq;
		if (*offset < skb->len)
			return skb;
	}
	return NULL;
}

/* Up to @len bytes from @seq on, of one packet; 0: none has come. */
static int tqp_peek_some(struct sock *sk, u32 seq, struct msghdr *msg, size_t len)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct sk_buff *skb;
	u32 offset, n;

	skb = tqp_peek_packet(sk, seq, &offset);
	if (!skb)
		return 0;
	n = min_t(size_t, len, skb->len - offset);
	if (unlikely(tp->urg_data))
		n = min(n, tp->urg_seq - seq);
	if (tqp_post_is_placed(skb))
		return tqp_post_copy_out(sk, seq, msg, n);
	return skb_copy_datagram_msg(skb, offset, msg, n) ? -EFAULT : n;
}

/* Where the byte is that comes behind the @done ones of this call. */
static u32 tqp_peek_seq(const struct sock *sk, int done)
{
	int offset = sk_peek_offset(sk, MSG_PEEK);

	return tcp_sk(sk)->copied_seq + (offset < 0 ? done : offset);
}

/* Who has bytes waits no more, as in TCP's. */
static bool tqp_peek_ends(const struct sock *sk, long timeo)
{
	return !timeo || sk->sk_err || sk->sk_state == TCP_CLOSE || sk->sk_shutdown & RCV_SHUTDOWN ||
	       signal_pending(current);
}

/* What there is behind @done bytes, up to @len in all; and what comes, while that is less than @target. */
static int tqp_peek_rest(struct sock *sk, struct msghdr *msg, int len, int done, int target, long timeo)
{
	u32 begin = tcp_sk(sk)->copied_seq;
	int n;

	while (done < len && tcp_sk(sk)->copied_seq == begin) {
		n = tqp_peek_some(sk, tqp_peek_seq(sk, done), msg, len - done);
		if (n < 0)
			return done ?: n;
		sk_peek_offset_fwd(sk, n);
		done += n;
		/* where an urgent byte is next, more that comes is not shown either */
		if (!n && (done >= target || tcp_sk(sk)->urg_data || tqp_peek_ends(sk, timeo) ||
			   sk_wait_data(sk, &timeo, skb_peek_tail(&sk->sk_receive_queue)) < 0))
			break;
	}
	return done ?: -EAGAIN;
}

static bool tqp_peek_is_at_placed(struct sock *sk, int done)
{
	struct sk_buff *skb;
	u32 offset;

	if (done && tcp_sk(sk)->urg_data)	/* it may lie before here, and is not counted */
		return false;
	skb = tqp_peek_packet(sk, tqp_peek_seq(sk, done), &offset);
	return skb && tqp_post_is_placed(skb);
}

/* As TCP: of the packet that has the last byte. */
static void tqp_peek_tell(struct sock *sk, struct msghdr *msg, u32 seq, struct tqp_told told)
{
	struct sk_buff *skb;
	u32 offset;

	skb = tqp_peek_packet(sk, seq, &offset);
	if (!skb || likely(!tqp_recv_tells(sk, msg)))
		return;
	tqp_told_set(msg, told);
	tqp_post_tell(sk, msg, skb, 0);
}

bool tqp_peek_on(struct sock *sk, struct msghdr *msg, size_t len, int flags, u32 begin,
		 struct tqp_told told, int *ret)
{
	int done = max(*ret, 0);
	bool same;

	lock_sock(sk);
	same = tcp_sk(sk)->copied_seq == begin;
	if (same && tqp_peek_is_at_placed(sk, done)) {
		*ret = tqp_peek_rest(sk, msg, min_t(size_t, len, INT_MAX), done,
				     sock_rcvlowat(sk, flags & MSG_WAITALL, len),
				     sock_rcvtimeo(sk, flags & MSG_DONTWAIT));
		if (*ret > 0)
			tqp_peek_tell(sk, msg, tqp_peek_seq(sk, *ret) - 1, told);
	}
	release_sock(sk);
	return same;
}
