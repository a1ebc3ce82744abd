// SPDX-License-Identifier: GPL-2.0
/*
 * TCP_ZEROCOPY_RECEIVE of a socket that posts.
 *
 * TCP's own maps no placed packet, and says neither that bytes wait nor that the stream has
 * ended.  If it was given a buffer to copy to, it fails at one with EFAULT, or tells of that as
 * of what it copied.  Its caller is told to recv() them.
 */
#include <net/tcp.h>
#include "stream/place.h"

/* All that was asked for, of @len bytes: by TCP, or as TCP would where it failed (@err). */
static int tqp_zerocopy_tell(struct tcp_zerocopy_receive __user *zc, int len, int err, u32 hint, u32 inq)
{
	if (put_user(hint, &zc->recv_skip_hint) || put_user(0, &zc->length))
		return -EFAULT;
	if (len >= (int)offsetofend(struct tcp_zerocopy_receive, copybuf_len) &&
	    put_user(0, &zc->copybuf_len))
		return -EFAULT;
	if (!err)
		return 0;
	if (len >= (int)offsetofend(struct tcp_zerocopy_receive, inq) && put_user(inq, &zc->inq))
		return -EFAULT;
	if (len >= (int)offsetofend(struct tcp_zerocopy_receive, err) && put_user(0, &zc->err))
		return -EFAULT;
	if (len >= (int)offsetofend(struct tcp_zerocopy_receive, msg_flags) &&
	    put_user(0, &zc->msg_flags))
		return -EFAULT;
	return 0;
}

/* TCP has told of bytes: mapped, copied, or to be received otherwise. */
static int tqp_zerocopy_is_told(const struct tcp_zerocopy_receive __user *zc, int len)
{
	u32 length, hint;
	s32 copied = 0;

	if (get_user(length, &zc->length) || get_user(hint, &zc->recv_skip_hint))
		return -EFAULT;
	if (len >= (int)offsetofend(struct tcp_zerocopy_receive, copybuf_len) &&
	    get_user(copied, &zc->copybuf_len))
		return -EFAULT;
	return length || copied > 0 || (hint && !copied);
}

static int tqp_zerocopy_hint(struct sock *sk, struct tcp_zerocopy_receive __user *zc, int len, int err)
{
	int told = err ? 0 : tqp_zerocopy_is_told(zc, len);
	u32 hint, inq;

	if (told)
		return min(told, 0);
	lock_sock(sk);
	hint = tqp_post_next(sk);
	inq = tcp_inq(sk);
	release_sock(sk);
	return hint ? tqp_zerocopy_tell(zc, len, err, hint, inq) : err;
}

int tqp_stream_getsockopt(struct sock *sk, int level, int optname, char __user *optval,
			  int __user *optlen)
{
	int err = tqp_stream_base(READ_ONCE(sk->sk_prot))->getsockopt(sk, level, optname, optval,
								     optlen);
	int len;

	if (level != SOL_TCP || optname != TCP_ZEROCOPY_RECEIVE || (err && err != -EFAULT))
		return err;
	if (get_user(len, optlen))
		return -EFAULT;
	if (len < (int)offsetofend(struct tcp_zerocopy_receive, recv_skip_hint))
		return err;
	return tqp_zerocopy_hint(sk, (void __user *)optval, len, err);
}
