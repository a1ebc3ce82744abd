// SPDX-License-Identifier: GPL-2.0
/*
 * A reader's post.
 *
 * Its memory is pinned from open to unpin, and the reader does not return in between.  From
 * cancel on the NIC writes nothing of it: the state word is taken from it, or waited for.
 * So a byte of the buffer is written by nobody but the reader itself once recv() has
 * returned.
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

/* Pinned for as long as a peer pleases: it counts as locked memory. */
static bool tqp_post_charge(u32 nr)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic64_add_return(nr, &current->mm->pinned_vm) <= limit || capable(CAP_IPC_LOCK))
		return true;
	atomic64_sub(nr, &current->mm->pinned_vm);
	return false;
}

/* What comes next in @msg, in one piece; 0: it is not memory of the reader's. */
static size_t tqp_post_memory(const struct msghdr *msg, unsigned long *addr)
{
	const struct iov_iter *iter = &msg->msg_iter;

	if (iter_is_ubuf(iter)) {
		*addr = (unsigned long)iter->ubuf + iter->iov_offset;
		return iter->count;
	}
	if (!iter_is_iovec(iter))
		return 0;
	*addr = (unsigned long)iter_iov_addr(iter);
	return iter_iov_len(iter);
}

static void tqp_post_unmap(struct tqp_place *place)
{
	while (place->nr_runs) {
		const struct tqp_place_run *run = &place->runs[--place->nr_runs];

		dma_unmap_page_attrs(place->odev->dma_dev, run->dma, (size_t)run->pages << PAGE_SHIFT,
				     DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC);
	}
}

/* How many of @nr pages follow each other, as those of a large one do. */
static u32 tqp_post_run(struct page *const *pages, u32 nr)
{
	unsigned long pfn = page_to_pfn(pages[0]);
	u32 n = 1;

	while (n < nr && page_to_pfn(pages[n]) == pfn + n)
		n++;
	return n;
}

static bool tqp_post_map(struct tqp_place *place, u32 nr)
{
	struct device *dma_dev = place->odev->dma_dev;
	u32 at = 0;

	while (at < nr) {
		struct tqp_place_run *run = &place->runs[place->nr_runs];

		run->pages = tqp_post_run(&place->pages[at], nr - at);
		run->dma = dma_map_page_attrs(dma_dev, place->pages[at], 0,
					      (size_t)run->pages << PAGE_SHIFT,
					      DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC);
		if (dma_mapping_error(dma_dev, run->dma)) {
			tqp_post_unmap(place);
			return false;
		}
		place->nr_runs++;
		for (u32 i = 0; i < run->pages; i++)
			place->post->pages[at++] = cpu_to_le64(run->dma + ((u64)i << PAGE_SHIFT));
	}
	return true;
}

static bool tqp_post_pin(struct tqp_place *place, struct tqp_recv *recv, unsigned long addr)
{
	u32 nr = DIV_ROUND_UP(recv->offset + tqp_recv_posted_bytes(recv), PAGE_SIZE);
	int pinned;

	if (!tqp_post_charge(nr))
		return false;
	pinned = pin_user_pages_fast(addr & PAGE_MASK, nr, FOLL_WRITE | FOLL_LONGTERM,
				     place->pages);
	if (pinned == nr && tqp_post_map(place, nr)) {
		recv->nr_pages = nr;
		recv->nr_runs = place->nr_runs;
		return true;
	}
	if (pinned > 0)
		unpin_user_pages(place->pages, pinned);
	atomic64_sub(nr, &current->mm->pinned_vm);
	return false;
}

void tqp_post_unpin(struct tqp_place *place, struct tqp_recv *recv)
{
	if (place->owner != recv)
		return;
	place->owner = NULL;
	if (place->lost)	/* the NIC may still write there: these pages are nobody's any more */
		return;
	tqp_post_unmap(place);
	unpin_user_pages_dirty_lock(place->pages, recv->nr_pages, true);
	atomic64_sub(recv->nr_pages, &current->mm->pinned_vm);
}

/* ---- open and close ---- */

/* Who wants to see packets, or more of them than bytes, gets them as TCP has them. */
static bool tqp_post_plain(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return sk->sk_state == TCP_ESTABLISHED && !tp->urg_data && !tp->repair &&
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

int tqp_post_open(struct sock *sk, struct tqp_place *place, struct tqp_recv *recv,
		   struct msghdr *msg, size_t want)
{
	struct tqp_stream *stream = tqp_stream_of(sk);
	struct tqp_offload_post *post = place->post;
	unsigned long addr = 0;
	size_t bytes;

	sock_owned_by_me(sk);
	tqp_post_drop_rescued(sk, place);
	if (!place->odev || READ_ONCE(place->gone) || place->owner || place->lost ||
	    place->rescued || !tqp_post_plain(sk))
		return -EBUSY;
	*recv = (struct tqp_recv) {
		.place = place,
		.begin = tcp_sk(sk)->copied_seq,
		.queued = tcp_sk(sk)->rcv_nxt - tcp_sk(sk)->copied_seq,
	};
	bytes = min(tqp_post_memory(msg, &addr), want);
	if (bytes < (size_t)recv->queued + TQP_PLACE_MIN_BYTES)
		return -EBUSY;
	addr += recv->queued;
	recv->offset = offset_in_page(addr);
	recv->bytes = recv->queued + min_t(size_t, bytes - recv->queued,
					   TQP_PLACE_PAGES_MAX * PAGE_SIZE - recv->offset);
	if (!tqp_post_pin(place, recv, addr))
		return -ENOMEM;
	refcount_inc(&place->refs);
	place->owner = recv;
	place->open = true;
	WRITE_ONCE(stream->posts, stream->posts + 1);
	place->posted = tqp_recv_seq(recv);
	post->placed = cpu_to_le32(place->posted);
	post->seq = cpu_to_le32(place->posted);
	post->bytes = cpu_to_le32(tqp_recv_posted_bytes(recv));
	post->offset = cpu_to_le32(recv->offset);
	/* after all that it says */
	smp_store_release(&post->state, cpu_to_le32(TQP_OFFLOAD_POST_OPEN));
	return 0;
}

/* The NIC has it for as long as it copies one burst; one that goes may have died over it. */
static void tqp_post_take_back(struct tqp_place *place)
{
	unsigned long limit = jiffies + msecs_to_jiffies(TQP_PLACE_DEAD_MS);
	__le32 state;

	for (;;) {
		state = cmpxchg(&place->post->state, cpu_to_le32(TQP_OFFLOAD_POST_OPEN),
				cpu_to_le32(TQP_OFFLOAD_POST_NONE));
		if (state != cpu_to_le32(TQP_OFFLOAD_POST_BUSY))
			return;
		if (READ_ONCE(place->gone) && time_after(jiffies, limit)) {
			place->lost = true;
			return;
		}
		usleep_range(TQP_PLACE_BUSY_US, 2 * TQP_PLACE_BUSY_US);
	}
}

void tqp_post_cancel(struct tqp_place *place)
{
	u32 placed;

	if (!place->open)
		return;
	place->open = false;
	tqp_post_take_back(place);
	placed = le32_to_cpu(READ_ONCE(place->post->placed)) - place->posted;
	/* a NIC may say anything */
	place->end = place->posted + min(placed, tqp_recv_posted_bytes(place->owner));
}

/* From the owner's memory, while it is pinned. */
static void tqp_post_copy(const struct tqp_place *place, u32 seq, u8 *to, u32 bytes)
{
	u32 at = place->owner->offset + (seq - place->posted);

	while (bytes) {
		u32 n = min_t(u32, PAGE_SIZE - offset_in_page(at), bytes);

		memcpy_from_page(to, place->pages[at >> PAGE_SHIFT], offset_in_page(at), n);
		at += n;
		to += n;
		bytes -= n;
	}
}

void tqp_post_close(struct sock *sk, struct tqp_place *place)
{
	u32 from = tcp_sk(sk)->copied_seq;

	sock_owned_by_me(sk);
	if (!place->owner || place->rescued)
		return;
	tqp_post_cancel(place);
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
	tqp_post_close(sk, place);
	if (!place->lost)
		tqp_post_unmap(place);
}

/* ---- what was placed ---- */

static bool tqp_post_is_placed(const struct sk_buff *skb)
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
	    tcp_sk(sk)->copied_seq != recv->begin + recv->done || bytes > recv->bytes - recv->done)
		return false;
	placed = place->open ? le32_to_cpu(READ_ONCE(place->post->placed)) : place->end;
	at = recv->done - recv->queued;
	return at + bytes <= placed - place->posted;
}

static int tqp_post_take_rescued(struct sock *sk, struct tqp_place *place, struct msghdr *msg,
				 u32 bytes)
{
	u32 seq = tcp_sk(sk)->copied_seq;
	u32 at = seq - place->rescued_seq, have;

	if (!place->rescued || at >= place->end - place->rescued_seq) {
		pr_warn_once("tcp_qp: a NIC says of bytes that it placed them, and nobody asked it\n");
		return -EFAULT;
	}
	have = min(bytes, place->end - seq);
	return copy_to_iter(place->rescued + at, have, &msg->msg_iter) ?: -EFAULT;
}

int tqp_post_take(struct sock *sk, struct tqp_recv *recv, struct msghdr *msg, size_t bytes,
		  bool peek)
{
	struct tqp_stream *stream = tqp_stream_of(sk);
	struct tqp_place *place = stream ? stream->place : NULL;
	size_t taken = 0;
	int n = 0;

	sock_owned_by_me(sk);
	while (place && taken < bytes && (n = tqp_post_next(sk)) > 0) {
		n = min_t(size_t, n, bytes - taken);
		if (!peek && tqp_post_is_home(sk, place, recv, n)) {
			iov_iter_advance(&msg->msg_iter, n);
			recv->done += n;
			recv->placed += n;
			WRITE_ONCE(stream->placed_bytes, stream->placed_bytes + n);
		} else {
			tqp_post_close(sk, place);
			n = tqp_post_take_rescued(sk, place, msg, n);
			if (n < 0)
				break;
			WRITE_ONCE(stream->rescued_bytes, stream->rescued_bytes + n);
			if (recv)
				recv->done += n;
		}
		taken += n;
		if (peek)
			break;
		sk_peek_offset_bwd(sk, n);
		tcp_read_done(sk, n);
	}
	if (place)
		tqp_post_drop_rescued(sk, place);
	return taken ?: min(n, 0);
}
