/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rings shared with user space, in the rxe user ABI (rdma_user_rxe.h).
 *
 * The header of a ring lies in memory that user space can write.  The kernel
 * keeps its own size, mask and index and never reads those back; the other
 * side's index is read once and masked.
 *
 * A ring whose producer is user space (SQ, RQ): the kernel's index is the
 * consumer.  A ring whose producer is the kernel (CQ): the producer.
 */
#ifndef TQP_RING_H
#define TQP_RING_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <tcp_qp/tcp_qp.h>
#include <uapi/rdma/rdma_user_rxe.h>

/*
 * Barriers, as in librxe: an index is stored with release after the entries it
 * covers were written (producer) or read (consumer), and loaded with acquire
 * before entries are touched that the other side handed over.
 */
struct tqp_ring {
	struct rdma_user_mmap_entry mmap_entry;	/* holds the ring; a mapping holds its pages */
	struct rxe_queue_buf *buf;		/* one page, or vmap() of several */
	u32 bytes;				/* page aligned */
	u32 mask;				/* elements - 1; one element stays empty */
	u32 index;				/* ours, masked */
	u8 log2_elem;
	bool awake;				/* of an SQ: what its header says; sk lock */
};

/*
 * Allocate a ring of at least @entries usable elements of at least @elem_bytes
 * and enter it in @uctx for mmap; @mi is told the offset and size.
 */
struct tqp_ring *tqp_ring_create(struct ib_ucontext *uctx, struct mminfo *mi, u32 entries,
				 u32 elem_bytes);
void tqp_ring_destroy(struct tqp_ring *ring);	/* memory goes when the last mapping goes */
void tqp_ring_mmap_free(struct rdma_user_mmap_entry *entry);
int tqp_ring_mmap(struct ib_ucontext *uctx, struct vm_area_struct *vma);
struct page *tqp_ring_page(const struct tqp_ring *ring, u32 number);
/* Its pages for @dma_dev, both ways, *@count of them; or an error. */
dma_addr_t *tqp_ring_map(const struct tqp_ring *ring, struct device *dma_dev, u32 *count);
void tqp_ring_unmap(struct device *dma_dev, dma_addr_t *pages, u32 count);
/* A NIC may write there for ever: the pages are never anybody else's.  They stay mapped. */
void tqp_ring_give_up(const struct tqp_ring *ring);

static inline void *tqp_ring_entry(const struct tqp_ring *ring, u32 index)
{
	return ring->buf->data + ((size_t)(index & ring->mask) << ring->log2_elem);
}

/* Producer index of user space: how far SQ or RQ entries may be read. */
static inline u32 tqp_ring_user_prod(const struct tqp_ring *ring)
{
	/* user space stores it with release after the entries */
	return smp_load_acquire(&ring->buf->producer_index) & ring->mask;
}

/*
 * Entries from @from on that user space has posted; those between our index
 * and @from are taken but not consumed yet.  A producer index that runs over
 * them is a lie: they keep their slots.
 */
static inline u32 tqp_ring_posted(const struct tqp_ring *ring, u32 from)
{
	u32 prod = tqp_ring_user_prod(ring), index = READ_ONCE(ring->index);
	u32 posted = (prod - index) & ring->mask, taken = (from - index) & ring->mask;

	return posted > taken ? posted - taken : 0;
}

/* We have taken the @count entries from ring->index on: their slots are user space's again. */
static inline void tqp_ring_consume_all(struct tqp_ring *ring, u32 count)
{
	ring->index = (ring->index + count) & ring->mask;
	/* after our reads of the entries: user space loads it with acquire */
	smp_store_release(&ring->buf->consumer_index, ring->index);
}

static inline void tqp_ring_consume(struct tqp_ring *ring)
{
	tqp_ring_consume_all(ring, 1);
}

/* ---- a send queue that user space wants watched, see tcp_qp.h ---- */

static inline bool tqp_ring_wants_watch(const struct tqp_ring *ring)
{
	return READ_ONCE(TCP_QP_SQ_WANTED(ring->buf));
}

/* From here on doorbells are left out: the caller will look again. */
static inline void tqp_ring_wake(struct tqp_ring *ring)
{
	if (ring->awake)
		return;
	ring->awake = true;
	WRITE_ONCE(TCP_QP_SQ_AWAKE(ring->buf), 1);
}

/* From here on they are rung.  What was posted before is seen by whoever looks after this. */
static inline void tqp_ring_sleep(struct tqp_ring *ring)
{
	if (!ring->awake)
		return;
	ring->awake = false;
	WRITE_ONCE(TCP_QP_SQ_AWAKE(ring->buf), 0);
	smp_mb();	/* pairs with user space's, between its index and its look at this */
}

/* Forget what user space posted and we have not consumed. */
static inline void tqp_ring_discard(struct tqp_ring *ring)
{
	ring->index = tqp_ring_user_prod(ring);
	/* as in tqp_ring_consume() */
	smp_store_release(&ring->buf->consumer_index, ring->index);
}

/* CQ side: entries that user space has not polled yet. */
static inline u32 tqp_ring_unpolled(const struct tqp_ring *ring)
{
	/* user space stores it with release after it read the entries */
	u32 cons = smp_load_acquire(&ring->buf->consumer_index) & ring->mask;

	return (ring->index - cons) & ring->mask;
}

/* CQ side: for how many more is there room? */
static inline u32 tqp_ring_room(const struct tqp_ring *ring)
{
	return ring->mask - tqp_ring_unpolled(ring);
}

static inline void tqp_ring_produce(struct tqp_ring *ring, u32 count)
{
	ring->index = (ring->index + count) & ring->mask;
	/* after the entries are written: user space loads it with acquire */
	smp_store_release(&ring->buf->producer_index, ring->index);
}

#endif
