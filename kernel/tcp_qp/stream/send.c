// SPDX-License-Identifier: GPL-2.0
/*
 * A large send, page by page: each time the socket's page fragment is a large page of ours,
 * TCP copies into what room it has, and by its own rules cuts, queues and sends.
 *
 * TCP never sleeps in there (MSG_DONTWAIT).  Waiting is done here, between two pages, so
 * that a time limit, a signal and an error mean what they mean in one call of TCP's.
 */
#include <linux/moduleparam.h>
#include "stream/stream.h"

static bool stream_pages = true;
module_param(stream_pages, bool, 0644);
MODULE_PARM_DESC(stream_pages, "sockets of ULP tcp_qp_stream send from large pages (default Y)");

/* Sends that TCP's own path serves better, or that only one call of it can do right. */
static bool tqp_stream_may(const struct sock *sk, const struct msghdr *msg)
{
	if (msg->msg_flags & (MSG_ZEROCOPY | MSG_SPLICE_PAGES | MSG_FASTOPEN | MSG_OOB) ||
	    msg->msg_controllen)
		return false;
	return READ_ONCE(stream_pages) &&
	       !(READ_ONCE(sk->sk_tsflags) & SOF_TIMESTAMPING_TX_RECORD_MASK);
}

static bool tqp_stream_is_ours(const struct sock *sk)
{
	return inet_csk(sk)->icsk_ulp_ops == &tqp_stream_ulp_ops;
}

/* The socket's pages, if it may use them now.  Not of those whose owner must not wait for memory. */
static struct tqp_stream *tqp_stream_bulk(struct sock *sk)
{
	struct tqp_stream *stream;

	if (tcp_sk(sk)->repair ||
	    !((1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT)) ||
	    !sk->sk_use_task_frag || !gfpflags_allow_blocking(sk->sk_allocation))
		return NULL;
	stream = tqp_stream_of(sk);
	if (stream || tcp_sk(sk)->bytes_acked < TQP_STREAM_BULK_BYTES)
		return stream;
	return tqp_stream_made(sk);
}

/* One call of TCP's, for at most @bytes of what is left of @msg.  Errors as TCP's, -EAGAIN: no space. */
static int tqp_stream_copy(struct sock *sk, struct msghdr *msg, size_t bytes, bool last)
{
	size_t left = msg_data_left(msg);
	int flags = msg->msg_flags;
	int done;

	msg->msg_flags |= MSG_DONTWAIT;
	if (!last)
		msg->msg_flags = (msg->msg_flags | MSG_MORE) & ~MSG_EOR;
	iov_iter_truncate(&msg->msg_iter, bytes);
	done = tcp_sendmsg_locked(sk, msg, bytes);
	iov_iter_reexpand(&msg->msg_iter, left - max(done, 0));
	msg->msg_flags = flags;
	return done;
}

/* Into a large page if there is one, else into TCP's own. */
static int tqp_stream_send_some(struct sock *sk, struct tqp_stream *stream, struct msghdr *msg)
{
	size_t left = msg_data_left(msg);
	u32 room = tqp_stream_load(stream, left);
	size_t bytes = min_t(size_t, left, room ?: TQP_STREAM_LARGE_SEND_BYTES);
	int done;

	sk->sk_use_task_frag = !room;
	done = tqp_stream_copy(sk, msg, bytes, bytes == left);
	sk->sk_use_task_frag = true;
	if (done > 0 && room)
		WRITE_ONCE(stream->large_bytes, stream->large_bytes + done);
	else if (done > 0)
		WRITE_ONCE(stream->other_bytes, stream->other_bytes + done);
	return done;
}

/* What is told once must not be taken by a call that tells of bytes. */
static bool tqp_stream_ended(const struct sock *sk)
{
	return sk->sk_err || sk->sk_shutdown & SEND_SHUTDOWN;
}

/* sk lock, which waiting gives away: after it the socket may have other operations, or no pages. */
static int tqp_stream_send(struct sock *sk, struct msghdr *msg)
{
	long timeo = sock_sndtimeo(sk, msg->msg_flags & MSG_DONTWAIT);
	struct tqp_stream *stream;
	size_t sent = 0, looked = 0;
	int done;

	while (msg_data_left(msg) && tqp_stream_is_ours(sk) && !(sent && tqp_stream_ended(sk))) {
		stream = tqp_stream_bulk(sk);
		if (stream)
			done = tqp_stream_send_some(sk, stream, msg);
		else
			done = tqp_stream_copy(sk, msg, msg_data_left(msg), true);
		if (done == -EAGAIN && timeo) {
			done = sk_stream_wait_memory(sk, &timeo);
			if (done && !sent)
				return sk_stream_error(sk, msg->msg_flags, done);
		}
		if (done < 0)
			return sent ?: done;
		sent += done;
		if (sent - looked >= TQP_STREAM_BACKLOG_BYTES && msg_data_left(msg)) {
			sk_flush_backlog(sk);
			looked = sent;
		}
	}
	return sent;
}

int tqp_stream_sendmsg(struct sock *sk, struct msghdr *msg, size_t size)
{
	bool ours;
	int ret = 0;

	if (size < TQP_STREAM_SEND_MIN_BYTES || !tqp_stream_may(sk, msg))
		return tcp_sendmsg(sk, msg, size);
	lock_sock(sk);
	ours = tqp_stream_is_ours(sk);
	if (ours && tqp_stream_bulk(sk))
		ret = tqp_stream_send(sk, msg);
	else if (ours)
		ret = tcp_sendmsg_locked(sk, msg, size);
	release_sock(sk);
	if (ret)
		return ret;
	/*
	 * Not ours, or not any more when memory had come.  Its operations now, but never this
	 * one again: they may be ours once more.
	 */
	return tqp_stream_base(READ_ONCE(sk->sk_prot))->sendmsg(sk, msg, size);
}
