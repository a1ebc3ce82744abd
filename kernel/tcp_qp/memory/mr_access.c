// SPDX-License-Identifier: GPL-2.0
/* Use of a memory region by the data path: checks, kernel addresses, page fragments. */
#include <linux/bvec.h>
#include <linux/mm.h>
#include "memory/memory.h"

/* Kernel addresses of pages are taken from the direct map. */
static_assert(!IS_ENABLED(CONFIG_HIGHMEM));

/* Where checked @addr is: the small page, and the bytes from there to the end of the region's page. */
static inline struct page *tqp_mr_page(const struct tqp_mr *mr, u64 addr, u32 *run)
{
	u64 within_mask = (1ULL << mr->page_shift) - 1;
	u64 at = addr - (mr->iova & ~within_mask);
	u64 within = at & within_mask;

	*run = within_mask + 1 - within;
	return nth_page(mr->pages[at >> mr->page_shift], within >> PAGE_SHIFT);
}

void *tqp_mr_kaddr(const struct tqp_mr *mr, u64 addr, u32 bytes, u32 *run)
{
	struct page *page = tqp_mr_page(mr, addr, run);

	*run = min(bytes, *run);
	return page_address(page) + offset_in_page(addr);
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

u32 tqp_mr_bvecs(const struct tqp_mr *mr, u64 addr, u32 bytes, struct bio_vec *bv, u32 used, u32 max,
		 u32 *done)
{
	struct bio_vec *last = used ? &bv[used - 1] : NULL;
	u64 end = addr + bytes;

	while (addr < end) {
		u32 run;
		struct page *page = tqp_mr_page(mr, addr, &run);

		run = min_t(u64, run, end - addr);
		if (last && bvec_phys(last) + last->bv_len == page_to_phys(page) + offset_in_page(addr)) {
			last->bv_len += run;
		} else {
			if (used == max)
				break;
			last = &bv[used++];
			bvec_set_page(last, page, run, offset_in_page(addr));
		}
		addr += run;
	}
	*done = bytes - (end - addr);
	return used;
}
