// SPDX-License-Identifier: GPL-2.0
/*
 * A reader's post.
 *
 * Its memory is pinned for as long as it has a registration of it (reg.c), and the reader does
 * not return in between.  From cancel on the NIC writes nothing of it: the state word is taken
 * from it, or waited for.  So a byte of the buffer is written by nobody but the reader itself
 * once recv() has returned.
 *
 * All of it runs under the sk lock.
 */
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/uio.h>
#include "stream/place.h"

static_assert(PAGE_SIZE == 4096);

/* ---- the reader's memory ---- */

/* Where the reader's memory is, and how much of it is left behind the @at bytes it has; 0: it is none of its own. */
static size_t tqp_post_memory(const struct msghdr *msg, unsigned long *begin, size_t *at)
{
	const struct iov_iter *iter = &msg->msg_iter;

	*at = iter->iov_offset;
	if (iter_is_ubuf(iter)) {
		*begin = (unsigned long)iter->ubuf;
		return iter->count;
	}
	if (!iter_is_iovec(iter))
		return 0;
	*begin = (unsigned long)iter_iov(iter)->iov_base;
	return iter_iov_len(iter);
}

/*
 * The registration that the post is in, of all memory at [@begin, @addr + what @recv wants), so
 * that the next call finds it, however much of that has come by then.
 */
static bool tqp_post_register(struct tqp_place *place, struct tqp_recv *recv, unsigned long begin,
			      unsigned long addr)
{
	unsigned long first = addr + recv->queued;
	u32 nr = DIV_ROUND_UP(addr + recv->bytes - (begin & PAGE_MASK), PAGE_SIZE);
	bool kept;

	place->reg = tqp_reg_get(place, begin & PAGE_MASK, nr, &kept);
	if (!place->reg)
		return false;
	place->reg_page = (first - tqp_reg_begin(place->reg)) >> PAGE_SHIFT;
	recv->offset = offset_in_page(first);
	recv->cheap = kept || place->reg->nr_runs <= nr / TQP_PLACE_RUN_PAGES;
	return true;
}

static void tqp_post_unregister(struct tqp_place *place)
{
	if (!place->reg)
		return;
	if (place->lost)
		WRITE_ONCE(place->reg->lost, true);
	tqp_reg_put(place->reg);
	place->reg = NULL;
}

void tqp_post_end(struct tqp_place *place, struct tqp_recv *recv)
{
	if (place->owner != recv)
		return;
	place->owner = NULL;
	tqp_post_unregister(place);
}

/* ---- open and close ---- */

/* TCP looks at all the bytes of each packet. */
static bool tqp_post_signed(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	bool is_signed = false;

#ifdef CONFIG_TCP_MD5SIG
	is_signed |= !!rcu_access_pointer(tp->md5sig_info);
#endif
#ifdef CONFIG_TCP_AO
	is_signed |= !!rcu_access_pointer(tp->ao_info);
#endif
	return is_signed;
}

/* Who wants to see packets, or more of them than bytes, gets them as TCP has them. */
static bool tqp_post_plain(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return sk->sk_state == TCP_ESTABLISHED && !tp->urg_data && !tp->repair && !tqp_post_signed(sk) &&
	       !tp->recvmsg_inq && READ_ONCE(sk->sk_peek_off) < 0 &&
	       !sock_flag(sk, SOCK_RCVTSTAMP) && !READ_ONCE(sk->sk_tsflags) &&
	       !rcu_access_pointer(sk->sk_filter) && !READ_ONCE(sk->sk_user_data);
}

/* All of what was rescued is read, or has come otherwise. */
static void tqp_post_drop_rescued(const struct sock *sk, struct tqp_place *place)
{
	if (!place->rescued || before(tcp_sk(sk)->copied_seq, place->end))
		return;
	kvfree(place->rescued);
	place->rescued = NULL;
}

/* What the NIC reads, but that it may. */
static void tqp_post_fill(const struct tqp_place *place, const struct tqp_recv *recv)
{
	u32 nr = DIV_ROUND_UP(recv->offset + tqp_recv_posted_bytes(recv), PAGE_SIZE);
	struct tqp_offload_post *post = place->post;

	memcpy(post->pages, &place->reg->dma[place->reg_page], nr * sizeof(*post->pages));
	post->placed = cpu_to_le32(place->posted);
	post->seq = cpu_to_le32(place->posted);
	post->bytes = cpu_to_le32(tqp_recv_posted_bytes(recv));
	post->offset = cpu_to_le32(recv->offset);
}

int tqp_post_open(struct sock *sk, struct tqp_place *place, struct tqp_recv *recv,
		   struct msghdr *msg, size_t want)
{
	struct tqp_stream *stream = tqp_stream_of(sk);
	unsigned long begin = 0;
	size_t at, bytes;

	sock_owned_by_me(sk);
	tqp_post_drop_rescued(sk, place);
	if (READ_ONCE(place->gone) || place->owner || place->lost || place->rescued ||
	    !tqp_urgent_may_post(sk, place) || !tqp_post_plain(sk))
		return -EBUSY;
	*recv = (struct tqp_recv) {
		.place = place,
		.begin = tcp_sk(sk)->copied_seq,
		.queued = tcp_sk(sk)->rcv_nxt - tcp_sk(sk)->copied_seq,
	};
	want = min(tqp_post_memory(msg, &begin, &at), want);
	if (want < TQP_PLACE_MIN_BYTES)
		return -EBUSY;
	begin += at - at % TQP_PLACE_POST_BYTES;
	at %= TQP_PLACE_POST_BYTES;
	bytes = min_t(size_t, want, TQP_PLACE_POST_BYTES - at);
	tqp_window_measure(sk, &place->reading);
	if (!at)	/* of what is left of a part that was begun, little says nothing */
		tqp_window_drain(sk, place, recv->queued >= bytes);
	tqp_window_limit(sk, place);
	if (bytes < (size_t)recv->queued + TQP_PLACE_MIN_BYTES) {
		if (bytes < TQP_PLACE_MIN_BYTES)
			recv->queued = max_t(u32, recv->queued, bytes);
		return -EAGAIN;
	}
	recv->bytes = bytes;
	recv->placed_to = tqp_recv_seq(recv);
	recv->seen = recv->placed_to;
	if (!tqp_post_register(place, recv, begin, begin + at))
		return -ENOMEM;
	place->revoked = false;
	place->posted = tqp_recv_seq(recv);
	tqp_post_fill(place, recv);
	if (!tqp_reg_open(place->reg, place)) {
		tqp_post_unregister(place);
		return -EBUSY;
	}
	refcount_inc(&place->refs);
	place->owner = recv;
	place->open = true;
	tqp_edge_open(sk, place);
	WRITE_ONCE(stream->posts, stream->posts + 1);
	return 0;
}

/* Once; true: the NIC does not write there now, and will not. */
static bool tqp_post_try_take_back(struct tqp_place *place)
{
	return tqp_offload_cmpxchg(&place->post->state, cpu_to_le32(TQP_OFFLOAD_POST_OPEN),
				   cpu_to_le32(TQP_OFFLOAD_POST_NONE)) != cpu_to_le32(TQP_OFFLOAD_POST_BUSY);
}

bool tqp_post_revoke(struct tqp_place *place)
{
	WRITE_ONCE(place->revoked, true);
	return tqp_post_try_take_back(place);
}

/* The NIC has it for as long as it copies one burst; one that goes may have died over it. */
static void tqp_post_take_back(struct tqp_place *place)
{
	unsigned long limit = jiffies + msecs_to_jiffies(TQP_PLACE_DEAD_MS);

	while (!tqp_post_try_take_back(place)) {
		if (READ_ONCE(place->gone) && time_after(jiffies, limit)) {
			place->lost = true;
			break;
		}
		usleep_range(TQP_PLACE_BUSY_US, 2 * TQP_PLACE_BUSY_US);
	}
	tqp_reg_close(place->reg);
}

void tqp_post_cancel(struct sock *sk, struct tqp_place *place)
{
	u32 placed;

	if (!place->open)
		return;
	place->open = false;
	tqp_edge_close(sk, place);
	tqp_post_take_back(place);
	placed = le32_to_cpu(READ_ONCE(place->post->placed)) - place->posted;
	/* a NIC may say anything */
	place->end = place->posted + min(placed, tqp_recv_posted_bytes(place->owner));
}

/* From the owner's memory, while it is pinned. */
static void tqp_post_copy(const struct tqp_place *place, u32 seq, u8 *to, u32 bytes)
{
	struct page *const *pages = &place->reg->pages[place->reg_page];
	u32 at = place->owner->offset + (seq - place->posted);

	while (bytes) {
		u32 n = min_t(u32, PAGE_SIZE - offset_in_page(at), bytes);

		memcpy_from_page(to, pages[at >> PAGE_SHIFT], offset_in_page(at), n);
		at += n;
		to += n;
		bytes -= n;
	}
}

void tqp_post_close(struct sock *sk, struct tqp_place *place)
{
	u32 from = tcp_sk(sk)->copied_seq;

	sock_owned_by_me(sk);
	if (!place->owner || place->rescued || !place->reg)
		return;
	tqp_post_cancel(sk, place);
	if (place->end == place->posted || !before(from, place->end))
		return;
	if (before(from, place->posted))	/* what had come before is in TCP's queue */
		from = place->posted;
	/* These bytes are acknowledged, or will be: there is no way but to keep them. */
	place->rescued = kvmalloc(place->end - from, GFP_KERNEL_ACCOUNT | __GFP_NOFAIL);
	place->rescued_seq = from;
	tqp_post_copy(place, from, place->rescued, place->end - from);
}

void tqp_post_leave(struct sock *sk, struct tqp_place *place)
{
	if (!place->owner)
		return;
	tqp_post_close(sk, place);
	if (!place->rescued)
		place->end = place->posted;	/* of what there is nothing left */
	tqp_post_unregister(place);
}

/* ---- what was placed ---- */

bool tqp_post_may_place(const struct sock *sk)
{
	const struct tqp_stream *stream;
	bool may;

	rcu_read_lock();
	stream = tqp_stream_rcu(sk);
	may = stream && READ_ONCE(stream->place);
	rcu_read_unlock();
	return may;
}

bool tqp_post_is_placed(const struct sk_buff *skb)
{
	return skb->decrypted && !skb_frags_readable(skb);
}

u32 tqp_post_next(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct sk_buff *skb;
	u32 offset;

	if (sk->sk_state == TCP_LISTEN || unlikely(tp->urg_data && tp->urg_seq == tp->copied_seq))
		return 0;
	skb = tcp_recv_skb(sk, tp->copied_seq, &offset);
	return skb && tqp_post_is_placed(skb) && offset < skb->len ? skb->len - offset : 0;
}

/* Are the next @bytes where this reader wants them? */
static bool tqp_post_is_home(const struct sock *sk, const struct tqp_place *place,
			     const struct tqp_recv *recv, u32 bytes)
{
	u32 placed, at;

	if (!recv || place->owner != recv || place->rescued || recv->done < recv->queued ||
	    READ_ONCE(place->revoked) ||
	    tcp_sk(sk)->copied_seq != recv->begin + recv->done || bytes > recv->bytes - recv->done)
		return false;
	placed = place->open ? le32_to_cpu(READ_ONCE(place->post->placed)) : place->end;
	at = recv->done - recv->queued;
	return at + bytes <= placed - place->posted;
}

static int tqp_post_copy_rescued(const struct tqp_place *place, u32 seq, struct msghdr *msg,
				 u32 bytes)
{
	u32 at = seq - place->rescued_seq, have;

	if (!place->rescued || at >= place->end - place->rescued_seq) {
		pr_warn_once("tcp_qp: a NIC says of bytes that it placed them, and nobody asked it\n");
		return -EFAULT;
	}
	have = min(bytes, place->end - seq);
	return copy_to_iter(place->rescued + at, have, &msg->msg_iter) ?: -EFAULT;
}

int tqp_post_copy_out(struct sock *sk, u32 seq, struct msghdr *msg, u32 bytes)
{
	struct tqp_stream *stream = tqp_stream_of(sk);
	struct tqp_place *place = stream ? stream->place : NULL;

	sock_owned_by_me(sk);
	if (!place)
		return -EFAULT;
	tqp_post_close(sk, place);
	return tqp_post_copy_rescued(place, seq, msg, bytes);
}

void tqp_post_tell(struct sock *sk, struct msghdr *msg, struct sk_buff *skb, u32 bytes)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	int waits = tp->rcv_nxt - tp->copied_seq - bytes;

	/* else the stamp would be of now */
	if (TCP_SKB_CB(skb)->has_rxtstamp && (skb->tstamp || !sock_flag(sk, SOCK_RCVTSTAMP)))
		__sock_recv_timestamp(msg, sk, skb);
	waits = !waits && sock_flag(sk, SOCK_DONE) ? 1 : waits;
	if (tp->recvmsg_inq)
		put_cmsg(msg, SOL_TCP, TCP_CM_INQ, sizeof(waits), &waits);
	if (tp->recvmsg_inq || msg->msg_get_inq)
		msg->msg_inq = waits;
}

/* The last packet's counts. */
static void tqp_post_tell_anew(struct sock *sk, struct msghdr *msg, struct tqp_told begin,
			       u32 bytes)
{
	u32 offset;

	tqp_told_set(msg, begin);
	tqp_post_tell(sk, msg, tcp_recv_skb(sk, tcp_sk(sk)->copied_seq, &offset), bytes);
}

int tqp_post_take(struct sock *sk, struct tqp_recv *recv, struct msghdr *msg, size_t bytes,
		  struct tqp_told told)
{
	struct tqp_stream *stream = tqp_stream_of(sk);
	struct tqp_place *place = stream ? stream->place : NULL;
	size_t taken = 0;
	int n = 0;

	sock_owned_by_me(sk);
	while (place && taken < bytes && (n = tqp_post_next(sk)) > 0) {
		n = min_t(size_t, n, bytes - taken);
		if (tqp_post_is_home(sk, place, recv, n)) {
			iov_iter_advance(&msg->msg_iter, n);
			WRITE_ONCE(stream->placed_bytes, stream->placed_bytes + n);
		} else {
			n = tqp_post_copy_out(sk, tcp_sk(sk)->copied_seq, msg, n);
			if (n < 0)
				break;
			WRITE_ONCE(stream->rescued_bytes, stream->rescued_bytes + n);
		}
		if (recv) {
			recv->done += n;
			recv->placed_to = recv->begin + recv->done;
		}
		taken += n;
		if (unlikely(tqp_recv_tells(sk, msg)))
			tqp_post_tell_anew(sk, msg, told, n);
		sk_peek_offset_bwd(sk, n);
		tcp_read_done(sk, n);
	}
	if (place)
		tqp_post_drop_rescued(sk, place);
	return taken ?: min(n, 0);
}
