// SPDX-License-Identifier: GPL-2.0
/*
 * Tables of a memory region: struct pages for the CPU, DMA addresses for the
 * switch.  Both cut the region at multiples of a page size in its own address
 * space; every page lies wholly in pinned memory.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <rdma/iter.h>
#include "memory/memory.h"

enum {
	TQP_MR_SHIFT_MAX = 21,	/* 2 MiB; above it a table has few entries anyway */
};

static u64 tqp_mr_first(const struct tqp_mr *mr)
{
	return round_down(mr->iova, PAGE_SIZE);
}

static u64 tqp_mr_pinned_bytes(const struct tqp_mr *mr)
{
	return round_up(mr->iova + mr->bytes, PAGE_SIZE) - tqp_mr_first(mr);
}

/* @bits has every bit set in which an edge, or address and physical address, differ from alignment. */
static int tqp_mr_alloc_pages(struct tqp_mr *mr, u64 bits)
{
	u64 bytes = tqp_mr_pinned_bytes(mr);

	bits |= tqp_mr_first(mr) | bytes | BIT_ULL(TQP_MR_SHIFT_MAX);
	mr->page_shift = __ffs64(bits);
	mr->nr_pages = bytes >> mr->page_shift;
	mr->pages = kvmalloc_array(mr->nr_pages, sizeof(*mr->pages), GFP_KERNEL_ACCOUNT);
	return mr->pages ? 0 : -ENOMEM;
}

static u64 tqp_mr_umem_bits(const struct tqp_mr *mr)
{
	u64 at = tqp_mr_first(mr), bits = 0;
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(&mr->umem->sgt_append.sgt, sg, i) {
		bits |= at | page_to_phys(sg_page(sg));
		at += sg->length;
	}
	/* An aligned edge on both sides makes all between congruent. */
	return bits;
}

int tqp_mr_pages_umem(struct tqp_mr *mr)
{
	struct scatterlist *sg;
	u32 count = 0;
	int i, ret;

	ret = tqp_mr_alloc_pages(mr, tqp_mr_umem_bits(mr));
	if (ret)
		return ret;
	for_each_sgtable_sg(&mr->umem->sgt_append.sgt, sg, i) {
		u64 at;

		for (at = 0; at < sg->length; at += 1ULL << mr->page_shift) {
			if (WARN_ON_ONCE(count == mr->nr_pages))
				return -EINVAL;
			mr->pages[count++] = nth_page(sg_page(sg), at >> PAGE_SHIFT);
		}
		cond_resched();
	}
	return WARN_ON_ONCE(count != mr->nr_pages) ? -EINVAL : 0;
}

static struct page *tqp_vmap_page(void *addr)
{
	if (is_vmalloc_addr(addr))
		return vmalloc_to_page(addr);
	return virt_addr_valid(addr) ? virt_to_page(addr) : NULL;
}

int tqp_mr_pages_vmap(struct tqp_mr *mr, u64 offset)
{
	void *first = mr->vmap.vaddr + round_down(offset, PAGE_SIZE);
	u32 i;
	int ret;

	ret = tqp_mr_alloc_pages(mr, PAGE_SIZE);
	if (ret)
		return ret;
	for (i = 0; i < mr->nr_pages; i++) {
		mr->pages[i] = tqp_vmap_page(first + ((size_t)i << PAGE_SHIFT));
		if (!mr->pages[i])
			return -EOPNOTSUPP;
		cond_resched();
	}
	return 0;
}

/* ---- the switch ---- */

static enum dma_data_direction tqp_mr_direction(const struct tqp_mr *mr)
{
	return ib_access_writable(mr->access) ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
}

int tqp_mr_table_at(struct tqp_mr *mr, const dma_addr_t *pages, u32 nr_pages, u8 page_shift)
{
	struct tqp_offload_device *odev = mr->dev->offload;
	struct tqp_offload_mr omr = {
		.key = mr->key,
		.pd = mr->pdn,
		.access = mr->access,
		.iova = mr->iova,
		.bytes = mr->bytes,
		.pages = pages,
		.nr_pages = nr_pages,
		.page_shift = page_shift,
	};

	return odev->ops->mr_reg(odev, &omr);
}

static void tqp_mr_dma_unmap_page(const struct tqp_mr *mr, dma_addr_t addr)
{
	dma_unmap_page_attrs(mr->dev->offload->dma_dev, addr, 1UL << mr->page_shift,
			     tqp_mr_direction(mr), DMA_ATTR_SKIP_CPU_SYNC);
}

static void tqp_mr_dma_unmap(struct tqp_mr *mr, u32 count)
{
	while (count--)
		tqp_mr_dma_unmap_page(mr, mr->dma_pages[count]);
	kvfree(mr->dma_pages);
	mr->dma_pages = NULL;
}

/*
 * CPU and switch share the page as long as the region lives, and so do other
 * regions of the same memory: there is no moment to hand it over, so a mapping
 * that is not coherent, or is bounced, is of no use.
 */
static int tqp_mr_dma_map_page(struct tqp_mr *mr, u32 i)
{
	struct device *dma_dev = mr->dev->offload->dma_dev;
	dma_addr_t addr = dma_map_page_attrs(dma_dev, mr->pages[i], 0, 1UL << mr->page_shift,
					     tqp_mr_direction(mr), DMA_ATTR_SKIP_CPU_SYNC);

	if (dma_mapping_error(dma_dev, addr))
		return -ENOMEM;
	mr->dma_pages[i] = addr;
	if (!dma_need_sync(dma_dev, addr))
		return 0;
	tqp_mr_dma_unmap_page(mr, addr);
	return -EOPNOTSUPP;
}

static int tqp_mr_dma_map(struct tqp_mr *mr)
{
	int ret;
	u32 i;

	mr->dma_pages = kvmalloc_array(mr->nr_pages, sizeof(*mr->dma_pages), GFP_KERNEL_ACCOUNT);
	if (!mr->dma_pages)
		return -ENOMEM;
	for (i = 0; i < mr->nr_pages; i++) {
		ret = tqp_mr_dma_map_page(mr, i);
		if (ret) {
			tqp_mr_dma_unmap(mr, i);
			return ret;
		}
		cond_resched();
	}
	return 0;
}

static int tqp_mr_offload_umem(struct tqp_mr *mr)
{
	int ret;

	ret = tqp_mr_dma_map(mr);
	if (ret)
		return ret;
	ret = tqp_mr_table_at(mr, mr->dma_pages, mr->nr_pages, mr->page_shift);
	if (ret)
		tqp_mr_dma_unmap(mr, mr->nr_pages);
	return ret;
}

static int tqp_mr_tell_blocks(struct tqp_mr *mr, struct ib_umem *umem)
{
	unsigned long page_size;
	struct ib_block_iter iter;
	u32 i = 0, count;
	dma_addr_t *pages;
	int ret;

	page_size = ib_umem_find_best_pgsz(umem, GENMASK(TQP_MR_SHIFT_MAX, PAGE_SHIFT), mr->iova);
	if (!page_size)
		return -EINVAL;
	count = ib_umem_num_dma_blocks(umem, page_size);
	pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL_ACCOUNT);
	if (!pages)
		return -ENOMEM;
	rdma_umem_for_each_dma_block(umem, &iter, page_size) {
		if (WARN_ON_ONCE(i == count))
			break;
		pages[i++] = rdma_block_iter_dma_address(&iter);
	}
	ret = tqp_mr_table_at(mr, pages, i, __ffs(page_size));
	kvfree(pages);
	return ret;
}

static int tqp_mr_offload_dmabuf(struct tqp_mr *mr, int fd, u64 offset)
{
	struct ib_umem_dmabuf *dma_umem;
	int ret;

	dma_umem = ib_umem_dmabuf_get_pinned_with_dma_device(&mr->dev->ib,
							     mr->dev->offload->dma_dev, offset,
							     mr->bytes, fd, mr->access);
	if (IS_ERR(dma_umem))
		return PTR_ERR(dma_umem);
	/* The fd may name another buffer by now. */
	ret = dma_umem->attach->dmabuf == mr->dmabuf ? tqp_mr_tell_blocks(mr, &dma_umem->umem) :
						       -EBADF;
	if (ret)
		ib_umem_release(&dma_umem->umem);
	else
		mr->dma_umem = dma_umem;
	return ret;
}

/*
 * A region the switch can't take (its table is full, the buffer can't be
 * mapped for it) still works: what it doesn't know it delivers, and the CPU
 * copies.  Counted.
 */
int tqp_mr_offload(struct tqp_mr *mr, int fd, u64 offset)
{
	int ret;

	if (!mr->dev->offload)
		return 0;
	if (mr->attach)
		return tqp_mr_offload_attached(mr, offset);
	ret = mr->dmabuf ? tqp_mr_offload_dmabuf(mr, fd, offset) : tqp_mr_offload_umem(mr);
	if (ret == -EBADF)
		return ret;
	if (ret)
		tqp_count(mr->dev, TQP_C_offload_refused, 1);
	mr->offloaded = !ret;
	return 0;
}

void tqp_mr_unload(struct tqp_mr *mr)
{
	struct tqp_offload_device *odev = mr->dev->offload;

	if (mr->attach) {
		tqp_mr_unload_attached(mr);
		return;
	}
	if (!mr->offloaded)
		return;
	mr->offloaded = false;
	mr->given_up = !tqp_end_is_forgotten(mr->dev, odev->ops->mr_dereg(odev, mr->key));
	if (mr->given_up)
		return;
	if (mr->dma_pages)
		tqp_mr_dma_unmap(mr, mr->nr_pages);
	if (mr->dma_umem)
		ib_umem_release(&mr->dma_umem->umem);
}
