// SPDX-License-Identifier: GPL-2.0
/*
 * Large pages that are used again, without having been cleared and freed in between.
 *
 * A page is free when nobody but us holds it: packets let go of theirs when they are
 * acknowledged, or read where the receiver is on this machine.  Nobody can take a new
 * reference to a page that he has none of, so what was seen free stays free.
 *
 * Pages are the memory cgroup's that sends.  Beside a bound for each socket there is one
 * for all, and idle sockets give theirs back: no timer runs while no socket has pages.
 *
 * What a socket leaves behind when it ends counts until nobody else holds it: who reads
 * on this machine may keep a byte of a page for as long as he likes (splice()).
 */
#include <linux/mm.h>
#include <linux/workqueue.h>
#include "stream/place.h"
#include "stream/stream.h"

static LIST_HEAD(tqp_stream_list);
static DEFINE_SPINLOCK(tqp_stream_lock);
static atomic_long_t tqp_stream_total = ATOMIC_LONG_INIT(0);	/* of 4 KiB pages */

static void tqp_stream_look(struct work_struct *work);
static DECLARE_DELAYED_WORK(tqp_stream_work, tqp_stream_look);

static struct tqp_stream *tqp_stream_create(struct sock *sk)
{
	struct tqp_stream *stream = kzalloc(sizeof(*stream), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);

	if (!stream)
		return NULL;
	stream->sk = sk;
	INIT_LIST_HEAD(&stream->node);
	return stream;
}

struct tqp_stream *tqp_stream_made(struct sock *sk)
{
	struct tqp_stream *stream = tqp_stream_of(sk);

	sock_owned_by_me(sk);
	if (!stream && inet_csk(sk)->icsk_ulp_ops == &tqp_stream_ulp_ops) {
		stream = tqp_stream_create(sk);
		rcu_assign_pointer(inet_csk(sk)->icsk_ulp_data, stream);
	}
	return stream;
}

static void tqp_stream_list_del(struct tqp_stream *stream)
{
	spin_lock_bh(&tqp_stream_lock);
	list_del_init(&stream->node);
	spin_unlock_bh(&tqp_stream_lock);
}

static void tqp_stream_list_add(struct tqp_stream *stream)
{
	bool first;

	spin_lock_bh(&tqp_stream_lock);
	first = list_empty(&tqp_stream_list);
	list_add_tail(&stream->node, &tqp_stream_list);
	spin_unlock_bh(&tqp_stream_lock);
	if (first)
		schedule_delayed_work(&tqp_stream_work, msecs_to_jiffies(TQP_STREAM_IDLE_MS));
}

static void tqp_stream_put_page(struct tqp_stream *stream, u32 at)
{
	struct page *page = stream->pages[at];

	atomic_long_sub(compound_nr(page), &tqp_stream_total);
	WRITE_ONCE(stream->bytes, stream->bytes - page_size(page));
	stream->pages[at] = stream->pages[--stream->nr_pages];
	stream->last = 0;
	if (stream->loaded == page)
		stream->loaded = NULL;
	put_page(page);
	if (!stream->nr_pages)
		tqp_stream_list_del(stream);
}

/* Has sk_frag one of ours?  Only the one that was taken last can be there. */
static bool tqp_stream_is_loaded(const struct tqp_stream *stream)
{
	return stream->loaded && stream->sk->sk_frag.page == stream->loaded;
}

static bool tqp_stream_is_free(const struct page *page)
{
	return page_ref_count(page) == 1;
}

/* ---- idle sockets ---- */

/* Pages that packets hold stay: they count until they are acknowledged. */
static void tqp_stream_put_free(struct tqp_stream *stream)
{
	for (u32 i = stream->nr_pages; i > 0; i--)
		if (tqp_stream_is_free(stream->pages[i - 1]))
			tqp_stream_put_page(stream, i - 1);
}

static void tqp_stream_unload(struct page_frag *frag)
{
	put_page(frag->page);
	frag->page = NULL;
	frag->offset = 0;
}

static void tqp_stream_idle(struct tqp_stream *stream)
{
	struct page_frag *frag = &stream->sk->sk_frag;

	/* ours and sk_frag's: nobody has a byte of it */
	if (tqp_stream_is_loaded(stream) && page_ref_count(frag->page) == 2)
		tqp_stream_unload(frag);
	tqp_stream_put_free(stream);
}

/* Who owns the socket uses it.  True: its packets are gone, and yet somebody holds pages of it. */
static bool tqp_stream_look_at(struct sock *sk)
{
	struct tqp_stream *stream;
	bool held = false;

	local_bh_disable();
	bh_lock_sock(sk);
	stream = sock_owned_by_user(sk) ? NULL : tqp_stream_of(sk);
	if (stream && !stream->used) {
		tqp_stream_idle(stream);
		held = stream->nr_pages && tcp_rtx_and_write_queues_empty(sk);
	} else if (stream) {
		stream->used = false;
	}
	bh_unlock_sock(sk);
	local_bh_enable();
	return held;
}

/* Without a socket it is the work's alone.  True: somebody holds pages of it. */
static bool tqp_stream_look_behind(struct tqp_stream *stream)
{
	tqp_stream_put_free(stream);
	if (stream->nr_pages)
		return true;
	kfree_rcu(stream, rcu);
	return false;
}

static void tqp_stream_look(struct work_struct *work)
{
	struct tqp_stream *stream;
	LIST_HEAD(seen);
	bool more, held = false;
	struct sock *sk;

	spin_lock_bh(&tqp_stream_lock);
	while (!list_empty(&tqp_stream_list)) {
		stream = list_first_entry(&tqp_stream_list, struct tqp_stream, node);
		list_move_tail(&stream->node, &seen);
		sk = stream->sk;
		/* It forgets the socket before that is freed; then its last reference is gone. */
		if (sk && !refcount_inc_not_zero(&sk->sk_refcnt))
			continue;
		spin_unlock_bh(&tqp_stream_lock);
		if (sk) {
			held |= tqp_stream_look_at(sk);
			sock_put(sk);
		} else {
			held |= tqp_stream_look_behind(stream);
		}
		cond_resched();
		spin_lock_bh(&tqp_stream_lock);
	}
	list_splice(&seen, &tqp_stream_list);
	more = !list_empty(&tqp_stream_list);
	spin_unlock_bh(&tqp_stream_lock);
	if (held)
		tqp_stream_flush();
	if (more)
		schedule_delayed_work(&tqp_stream_work, msecs_to_jiffies(TQP_STREAM_IDLE_MS));
}

void tqp_stream_destroy(struct tqp_stream *stream)
{
	bool empty;

	if (stream->place)
		tqp_place_end(stream->place);
	WRITE_ONCE(stream->place, NULL);
	if (tqp_stream_is_loaded(stream))
		tqp_stream_unload(&stream->sk->sk_frag);
	tqp_stream_put_free(stream);
	spin_lock_bh(&tqp_stream_lock);
	empty = !stream->nr_pages;	/* else the work has it from here on */
	stream->sk = NULL;
	spin_unlock_bh(&tqp_stream_lock);
	if (empty)
		kfree_rcu(stream, rcu);
}

/* ---- a page to send from ---- */

/* Of the free ones the one that was used last: the cache still has it. */
static struct page *tqp_stream_find(struct tqp_stream *stream)
{
	u32 at = stream->last;

	for (u32 i = 0; i < stream->nr_pages; i++) {
		if (tqp_stream_is_free(stream->pages[at])) {
			stream->last = at;
			return stream->pages[at];
		}
		at = at ? at - 1 : stream->nr_pages - 1;
	}
	return NULL;
}

static bool tqp_stream_charge(struct tqp_stream *stream, u32 order)
{
	long pages = 1L << order;

	if (stream->nr_pages == TQP_STREAM_PAGES_MAX ||
	    stream->bytes + (PAGE_SIZE << order) > TQP_STREAM_BYTES_MAX)
		return false;
	if (atomic_long_add_return(pages, &tqp_stream_total) <=
	    totalram_pages() / TQP_STREAM_RAM_SHARE)
		return true;
	atomic_long_sub(pages, &tqp_stream_total);
	return false;
}

/* As TCP allocates its own pages: without reclaim for a large one. */
static struct page *tqp_stream_alloc(struct tqp_stream *stream, u32 order)
{
	gfp_t gfp = (stream->sk->sk_allocation & ~__GFP_DIRECT_RECLAIM) |
		    __GFP_ACCOUNT | __GFP_COMP | __GFP_NOWARN | __GFP_NORETRY;
	struct page *page;

	if (!tqp_stream_charge(stream, order))
		return NULL;
	page = alloc_pages(gfp, order);
	if (!page) {
		atomic_long_sub(1L << order, &tqp_stream_total);
		return NULL;
	}
	if (!stream->nr_pages)
		tqp_stream_list_add(stream);
	stream->last = stream->nr_pages;
	stream->pages[stream->nr_pages++] = page;
	WRITE_ONCE(stream->bytes, stream->bytes + (PAGE_SIZE << order));
	return page;
}

static struct page *tqp_stream_page(struct tqp_stream *stream, size_t want)
{
	struct page *page = tqp_stream_find(stream);

	if (page || (stream->retry_at && time_before(jiffies, stream->retry_at)))
		return page;
	if (want >= TQP_STREAM_LARGE_SEND_BYTES)
		page = tqp_stream_alloc(stream, TQP_STREAM_LARGE_ORDER);
	if (!page)
		page = tqp_stream_alloc(stream, TQP_STREAM_SMALL_ORDER);
	stream->retry_at = page ? 0 : (jiffies + HZ / 10) ?: 1;
	return page;
}

/*
 * A program's buffer and a large page often begin at multiples of the same power of two.  Copied
 * from begin to begin each pair of pages would be one that caches and TLBs hold in one place.
 */
u32 tqp_stream_load(struct tqp_stream *stream, size_t want)
{
	struct page_frag *frag = &stream->sk->sk_frag;
	struct page *page;

	sock_owned_by_me(stream->sk);
	stream->used = true;
	if (tqp_stream_is_loaded(stream)) {
		if (page_ref_count(frag->page) == 2)	/* ours and sk_frag's: all of it is acknowledged */
			frag->offset = TQP_STREAM_BEGIN_BYTES;
		if (frag->size - frag->offset >= TQP_STREAM_ROOM_MIN_BYTES)
			return frag->size - frag->offset;
	}
	page = tqp_stream_page(stream, want);
	if (!page)
		return 0;
	if (frag->page)
		put_page(frag->page);
	get_page(page);
	stream->loaded = page;
	frag->page = page;
	frag->offset = TQP_STREAM_BEGIN_BYTES;
	frag->size = page_size(page);
	return frag->size - frag->offset;
}

void tqp_stream_pages_exit(void)
{
	struct tqp_stream *stream, *next;

	cancel_delayed_work_sync(&tqp_stream_work);	/* no socket is left that could start it */
	list_for_each_entry_safe(stream, next, &tqp_stream_list, node) {
		while (stream->nr_pages)
			tqp_stream_put_page(stream, stream->nr_pages - 1);
		kfree_rcu(stream, rcu);
	}
}
