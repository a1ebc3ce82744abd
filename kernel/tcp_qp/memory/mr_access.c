// SPDX-License-Identifier: GPL-2.0
/* Use of a memory region by the data path: checks, kernel addresses, page fragments. */
#include <linux/bvec.h>
#include <linux/mm.h>
#include "memory/memory.h"

/* Kernel addresses of pages are taken from the direct map. */
static_assert(!IS_ENABLED(CONFIG_HIGHMEM));

void *tqp_mr_kaddr(const struct tqp_mr *mr, u64 addr, u32 bytes, u32 *run)
{
	struct page *page = tqp_mr_page(mr, addr, run);

	*run = min(bytes, *run);
	return page_address(page) + offset_in_page(addr);
}

static bool tqp_mr_copy(struct tqp_device *dev, u32 pdn, const struct ib_sge *sge, u8 *to,
			bool of_device)
{
	u32 left = sge->length, run;
	u64 addr = sge->addr;
	const void *from;
	struct tqp_mr *mr;
	bool ok;

	rcu_read_lock();
	mr = tqp_mr_lookup(dev, sge->lkey);
	ok = mr && (of_device || !mr->attach) && !tqp_mr_check(mr, pdn, addr, left, 0);
	for (; ok && left; left -= run, addr += run, to += run) {
		from = tqp_mr_kaddr(mr, addr, left, &run);
		memcpy(to, from, run);
	}
	rcu_read_unlock();
	return ok;
}

bool tqp_mr_copy_from(struct tqp_device *dev, u32 pdn, const struct ib_sge *sge, u8 *to)
{
	return !sge->length || tqp_mr_copy(dev, pdn, sge, to, true);
}

bool tqp_mr_copy_from_ram(struct tqp_device *dev, u32 pdn, const struct ib_sge *sge, u8 *to)
{
	return tqp_mr_copy(dev, pdn, sge, to, false);
}
