// SPDX-License-Identifier: GPL-2.0
/* Use of a memory region by the data path: checks, kernel addresses, page fragments. */
#include <linux/bvec.h>
#include <linux/mm.h>
#include "memory/memory.h"

/* Kernel addresses of pages are taken from the direct map. */
static_assert(!IS_ENABLED(CONFIG_HIGHMEM));

int tqp_mr_check(const struct tqp_mr *mr, u32 pdn, u64 addr, u64 bytes, int access)
{
	u64 offset = addr - mr->iova;

	if (mr->pdn != pdn || (mr->access & access) != access)
		return -EACCES;
	if (addr < mr->iova || offset > mr->bytes || bytes > mr->bytes - offset)
		return -EFAULT;
	return 0;
}

/* The small page of checked @addr. */
static struct page *tqp_mr_page(const struct tqp_mr *mr, u64 addr)
{
	u64 at = addr - round_down(mr->iova, 1ULL << mr->page_shift);
	u64 within = at & ((1ULL << mr->page_shift) - 1);

	return nth_page(mr->pages[at >> mr->page_shift], within >> PAGE_SHIFT);
}

/* Bytes from @addr to the end of its page of the region. */
static u32 tqp_mr_run(const struct tqp_mr *mr, u64 addr)
{
	return (1U << mr->page_shift) - (addr & ((1ULL << mr->page_shift) - 1));
}

void *tqp_mr_kaddr(const struct tqp_mr *mr, u64 addr, u32 bytes, u32 *run)
{
	*run = min(bytes, tqp_mr_run(mr, addr));
	return page_address(tqp_mr_page(mr, addr)) + offset_in_page(addr);
}

bool tqp_mr_copy_from(struct tqp_device *dev, u32 pdn, const struct ib_sge *sge, u8 *to)
{
	u32 left = sge->length, run;
	u64 addr = sge->addr;
	const void *from;
	struct tqp_mr *mr;
	bool ok;

	if (!left)
		return true;
	rcu_read_lock();
	mr = tqp_mr_lookup(dev, sge->lkey);
	ok = mr && !tqp_mr_check(mr, pdn, addr, left, 0);
	for (; ok && left; left -= run, addr += run, to += run) {
		from = tqp_mr_kaddr(mr, addr, left, &run);
		memcpy(to, from, run);
	}
	rcu_read_unlock();
	return ok;
}

/* Grow @bv by @bytes at @phys if they follow it in memory. */
static bool tqp_mr_join(struct bio_vec *bv, phys_addr_t phys, u32 bytes)
{
	if (bvec_phys(bv) + bv->bv_len != phys)
		return false;
	bv->bv_len += bytes;
	return true;
}

u32 tqp_mr_bvecs(const struct tqp_mr *mr, u64 addr, u32 bytes, struct bio_vec *bv, u32 used, u32 max,
		 u32 *done)
{
	u32 covered = 0;

	while (covered < bytes) {
		u64 at = addr + covered;
		u32 run = min(bytes - covered, tqp_mr_run(mr, at));
		struct page *page = tqp_mr_page(mr, at);

		if (!used || !tqp_mr_join(&bv[used - 1], page_to_phys(page) + offset_in_page(at),
					  run)) {
			if (used == max)
				break;
			bvec_set_page(&bv[used++], page, run, offset_in_page(at));
		}
		covered += run;
	}
	*done = covered;
	return used;
}
