// SPDX-License-Identifier: GPL-2.0
/*
 * Ring memory: pages charged to the creator's memory cgroup, mapped once for
 * the kernel and by mmap() for user space.  A user mapping holds its pages by
 * their own reference counts, so the ring may go first.  A ring of one page, as
 * thousands of small queue pairs have, is where the kernel maps all memory.
 */
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "object/tqp.h"

enum {
	TQP_RING_ELEM_MIN_BYTES = 64,	/* librxe wants log2 >= 6 on a CQ */
	TQP_RING_SLOTS_MIN = 2,
};

static_assert(sizeof(struct rxe_queue_buf) == 384);
static_assert(sizeof(struct ib_uverbs_wc) <= TQP_RING_ELEM_MIN_BYTES);

static void tqp_ring_free_pages(struct page **pages, u32 count)
{
	while (count--)
		__free_page(pages[count]);
	kvfree(pages);
}

static struct rxe_queue_buf *tqp_ring_map_pages(size_t bytes)
{
	u32 i, count = bytes >> PAGE_SHIFT;
	struct page **pages;
	void *buf;

	pages = kvcalloc(count, sizeof(*pages), GFP_KERNEL_ACCOUNT);
	if (!pages)
		return NULL;
	for (i = 0; i < count; i++) {
		pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!pages[i])
			goto err_free;
		cond_resched();
	}
	buf = vmap(pages, count, VM_MAP | VM_USERMAP | VM_MAP_PUT_PAGES, PAGE_KERNEL);
	if (!buf)
		goto err_free;
	return buf;

err_free:
	tqp_ring_free_pages(pages, i);
	return NULL;
}

static bool tqp_ring_is_page(const struct tqp_ring *ring)
{
	return ring->bytes == PAGE_SIZE;
}

static struct rxe_queue_buf *tqp_ring_alloc_buf(const struct tqp_ring *ring)
{
	if (tqp_ring_is_page(ring))
		return (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	return tqp_ring_map_pages(ring->bytes);
}

static void tqp_ring_free_buf(const struct tqp_ring *ring)
{
	if (tqp_ring_is_page(ring))
		free_page((unsigned long)ring->buf);
	else
		vfree(ring->buf);
}

struct page *tqp_ring_page(const struct tqp_ring *ring, u32 number)
{
	if (tqp_ring_is_page(ring))
		return virt_to_page(ring->buf);
	return vmalloc_to_page((u8 *)ring->buf + ((size_t)number << PAGE_SHIFT));
}

void tqp_ring_unmap(struct device *dma_dev, dma_addr_t *pages, u32 count)
{
	while (count--)
		dma_unmap_page(dma_dev, pages[count], PAGE_SIZE, DMA_BIDIRECTIONAL);
	kvfree(pages);
}

void tqp_ring_give_up(const struct tqp_ring *ring)
{
	for (u32 i = 0; i < ring->bytes >> PAGE_SHIFT; i++)
		get_page(tqp_ring_page(ring, i));
}

dma_addr_t *tqp_ring_map(const struct tqp_ring *ring, struct device *dma_dev, u32 *count)
{
	u32 all = ring->bytes >> PAGE_SHIFT;
	dma_addr_t *pages = kvcalloc(all, sizeof(*pages), GFP_KERNEL_ACCOUNT);

	if (!pages)
		return ERR_PTR(-ENOMEM);
	for (u32 i = 0; i < all; i++) {
		pages[i] = dma_map_page(dma_dev, tqp_ring_page(ring, i), 0, PAGE_SIZE,
					DMA_BIDIRECTIONAL);
		if (dma_mapping_error(dma_dev, pages[i])) {
			tqp_ring_unmap(dma_dev, pages, i);
			return ERR_PTR(-EIO);
		}
	}
	*count = all;
	return pages;
}

static void tqp_ring_shape(struct tqp_ring *ring, u32 entries, u32 elem_bytes)
{
	u32 slots = roundup_pow_of_two(max_t(u32, entries + 1, TQP_RING_SLOTS_MIN));

	ring->mask = slots - 1;
	ring->log2_elem = order_base_2(max_t(u32, elem_bytes, TQP_RING_ELEM_MIN_BYTES));
	ring->bytes = PAGE_ALIGN(sizeof(*ring->buf) + ((size_t)slots << ring->log2_elem));
}

struct tqp_ring *tqp_ring_create(struct ib_ucontext *uctx, struct mminfo *mi, u32 entries,
				 u32 elem_bytes)
{
	struct tqp_ring *ring;
	int ret = -ENOMEM;

	ring = kzalloc(sizeof(*ring), GFP_KERNEL_ACCOUNT);
	if (!ring)
		return ERR_PTR(-ENOMEM);
	tqp_ring_shape(ring, entries, elem_bytes);
	ring->buf = tqp_ring_alloc_buf(ring);
	if (!ring->buf)
		goto err_ring;
	/* For user space alone: the kernel never reads these back. */
	ring->buf->log2_elem_size = ring->log2_elem;
	ring->buf->index_mask = ring->mask;

	ret = rdma_user_mmap_entry_insert(uctx, &ring->mmap_entry, ring->bytes);
	if (ret)
		goto err_buf;
	mi->offset = rdma_user_mmap_get_offset(&ring->mmap_entry);
	mi->size = ring->bytes;
	mi->pad = 0;
	return ring;

err_buf:
	tqp_ring_free_buf(ring);
err_ring:
	kfree(ring);
	return ERR_PTR(ret);
}

void tqp_ring_destroy(struct tqp_ring *ring)
{
	if (ring)
		rdma_user_mmap_entry_remove(&ring->mmap_entry);
}

void tqp_ring_mmap_free(struct rdma_user_mmap_entry *entry)
{
	struct tqp_ring *ring = container_of(entry, struct tqp_ring, mmap_entry);

	tqp_ring_free_buf(ring);
	kfree(ring);
}

/* The entry that was found is as long as @vma. */
static int tqp_ring_map_user(const struct tqp_ring *ring, struct vm_area_struct *vma)
{
	if (!tqp_ring_is_page(ring))
		return remap_vmalloc_range(vma, ring->buf, 0);
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	return vm_insert_page(vma, vma->vm_start, virt_to_page(ring->buf));
}

int tqp_ring_mmap(struct ib_ucontext *uctx, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry = rdma_user_mmap_entry_get(uctx, vma);
	struct tqp_ring *ring;
	int ret;

	if (!entry)
		return -EINVAL;
	ring = container_of(entry, struct tqp_ring, mmap_entry);
	ret = tqp_ring_map_user(ring, vma);
	rdma_user_mmap_entry_put(entry);
	return ret;
}
