// SPDX-License-Identifier: GPL-2.0
/*
 * A registration: made, posted, invalidated, given back.
 *
 * To pin and map a page of 4 KiB costs what it costs to copy it, so a buffer that is received
 * into again and again is pinned once.
 *
 * Locks: the sk lock, then mmap_lock (pinning takes it, as each copy to a user may), then the
 * notifier's, then tqp_regs_lock.  Whoever invalidates holds mmap_lock or locks of reclaim,
 * so there no socket is locked, nothing is allocated, and pages are unpinned by a work.
 *
 * For a NIC is mapped and unmapped under tqp_regs_mapping, within which nobody faults or waits
 * for another: a NIC that goes takes it from all.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include "object/tqp.h"
#include "stream/place.h"
#include "stream/reg.h"

static_assert(PAGE_SIZE == 4096);

/* ---- pages ---- */

/* How many of @nr pages follow each other, as those of a large one do. */
static u32 tqp_reg_run(struct page *const *pages, u32 nr)
{
	unsigned long pfn = page_to_pfn(pages[0]);
	u32 n = 1;

	while (n < nr && page_to_pfn(pages[n]) == pfn + n)
		n++;
	return n;
}

static void tqp_reg_unmap_pages(const struct tqp_reg *reg, u32 pages)
{
	for (u32 at = 0, n; at < pages; at += n) {
		n = tqp_reg_run(&reg->pages[at], reg->nr_pages - at);
		dma_unmap_page_attrs(reg->dma_dev, le64_to_cpu(reg->dma[at]),
				     (size_t)n << PAGE_SHIFT, DMA_FROM_DEVICE,
				     DMA_ATTR_SKIP_CPU_SYNC);
	}
}

void tqp_reg_unmap(struct tqp_reg *reg)
{
	lockdep_assert_held(&tqp_regs_mapping);
	if (reg->dma_dev && !READ_ONCE(reg->lost))
		tqp_reg_unmap_pages(reg, reg->nr_pages);
	reg->dma_dev = NULL;
}

static bool tqp_reg_map_pages(struct tqp_reg *reg)
{
	reg->nr_runs = 0;
	for (u32 at = 0, n; at < reg->nr_pages; at += n) {
		dma_addr_t dma;

		n = tqp_reg_run(&reg->pages[at], reg->nr_pages - at);
		dma = dma_map_page_attrs(reg->dma_dev, reg->pages[at], 0, (size_t)n << PAGE_SHIFT,
					 DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC);
		if (dma_mapping_error(reg->dma_dev, dma)) {
			tqp_reg_unmap_pages(reg, at);
			return false;
		}
		for (u32 i = 0; i < n; i++)
			reg->dma[at + i] = cpu_to_le64(dma + ((u64)i << PAGE_SHIFT));
		reg->nr_runs++;
		/* nobody hands it over from the NIC to the CPU */
		if (dma_need_sync(reg->dma_dev, dma)) {
			tqp_reg_unmap_pages(reg, at + n);
			return false;
		}
	}
	return true;
}

static bool tqp_reg_pin(struct tqp_reg *reg)
{
	int pinned = pin_user_pages_fast(tqp_reg_begin(reg), reg->nr_pages,
					 FOLL_WRITE | FOLL_LONGTERM, reg->pages);

	if (pinned == reg->nr_pages)
		return true;
	if (pinned > 0)
		unpin_user_pages(reg->pages, pinned);
	return false;
}

/* ---- the end of one ---- */

static void tqp_reg_discard(struct tqp_reg *reg)
{
	kvfree(reg->dma);
	kvfree(reg->pages);
	kfree(reg);
}

static void tqp_reg_free(struct tqp_reg *reg)
{
	struct mm_struct *mm = reg->mn.mm;

	mmgrab(mm);
	mmu_interval_notifier_remove(&reg->mn);
	down_read(&tqp_regs_mapping);
	tqp_reg_unmap(reg);
	up_read(&tqp_regs_mapping);
	if (!reg->lost) {
		unpin_user_pages_dirty_lock(reg->pages, reg->nr_pages, true);
		tqp_regs_uncharge(mm, reg->nr_pages);
	}
	mmdrop(mm);
	tqp_regs_forget(reg);
	tqp_reg_discard(reg);
}

void tqp_reg_put(struct tqp_reg *reg)
{
	if (refcount_dec_and_test(&reg->refs))
		tqp_reg_free(reg);
}

static void tqp_reg_drop(struct tqp_reg *reg)
{
	bool kept;

	spin_lock(&tqp_regs_lock);
	kept = tqp_regs_unlink(reg);
	spin_unlock(&tqp_regs_lock);
	if (kept)
		tqp_reg_put(reg);
}

static void tqp_reg_drop_work(struct work_struct *work)
{
	struct tqp_reg *reg = container_of(work, struct tqp_reg, drop_work);

	tqp_reg_drop(reg);
	tqp_reg_put(reg);
}

/* ---- the kernel changes what is mapped there ---- */

/* True: the NIC has no post there any more, or is dead.  tqp_regs_lock, which it gives away meanwhile. */
static bool tqp_reg_take_back(struct tqp_reg *reg, bool may_wait)
{
	unsigned long limit = jiffies + msecs_to_jiffies(TQP_PLACE_DEAD_MS);

	while (reg->place && !tqp_post_revoke(reg->place)) {
		if (!may_wait)
			return false;
		if (READ_ONCE(reg->place->gone) && time_after(jiffies, limit))
			break;	/* its owner gives the pages up */
		spin_unlock(&tqp_regs_lock);
		usleep_range(TQP_PLACE_BUSY_US, 2 * TQP_PLACE_BUSY_US);
		spin_lock(&tqp_regs_lock);
	}
	return true;
}

/* tqp_regs_lock. */
static void tqp_reg_end(struct tqp_reg *reg)
{
	if (!reg->valid)
		return;
	reg->valid = false;
	refcount_inc(&reg->refs);
	queue_work(tqp_wq, &reg->drop_work);
}

void tqp_reg_gone(struct tqp_reg *reg)
{
	lockdep_assert_held_write(&tqp_regs_mapping);
	spin_lock(&tqp_regs_lock);
	tqp_reg_take_back(reg, true);
	if (reg->place && !tqp_post_revoke(reg->place))
		WRITE_ONCE(reg->lost, true);
	tqp_reg_end(reg);
	spin_unlock(&tqp_regs_lock);
	tqp_reg_unmap(reg);
}

static bool tqp_reg_invalidate(struct mmu_interval_notifier *mn,
			       const struct mmu_notifier_range *range, unsigned long seq)
{
	struct tqp_reg *reg = container_of(mn, struct tqp_reg, mn);
	bool done;

	spin_lock(&tqp_regs_lock);
	done = tqp_reg_take_back(reg, mmu_notifier_range_blockable(range));
	if (done) {
		mmu_interval_set_seq(mn, seq);
		tqp_reg_end(reg);
	}
	spin_unlock(&tqp_regs_lock);
	return done;
}

static const struct mmu_interval_notifier_ops tqp_reg_ops = {
	.invalidate = tqp_reg_invalidate,
};

/* ---- making one ---- */

static struct tqp_reg *tqp_reg_alloc(u32 nr)
{
	struct tqp_reg *reg = kzalloc(sizeof(*reg), GFP_KERNEL_ACCOUNT);

	if (!reg)
		return NULL;
	refcount_set(&reg->refs, 1);
	INIT_LIST_HEAD(&reg->node);
	INIT_WORK(&reg->drop_work, tqp_reg_drop_work);
	reg->nr_pages = nr;
	reg->rights = tqp_regs_rights();
	reg->pages = kvmalloc_array(nr, sizeof(*reg->pages), GFP_KERNEL_ACCOUNT);
	reg->dma = kvmalloc_array(nr, sizeof(*reg->dma), GFP_KERNEL_ACCOUNT);
	if (reg->pages && reg->dma)
		return reg;
	tqp_reg_discard(reg);
	return NULL;
}

/* From here on it is invalidated as soon as its pages are not what is mapped there. */
static bool tqp_reg_publish(struct tqp_reg *reg, unsigned long seq)
{
	spin_lock(&tqp_regs_lock);
	reg->valid = !mmu_interval_read_retry(&reg->mn, seq);
	if (reg->valid) {
		refcount_inc(&reg->refs);
		reg->used_at = jiffies;
		tqp_regs_add(reg);
	}
	spin_unlock(&tqp_regs_lock);
	return reg->valid;
}

/* What is pinned, for the NIC.  -EAGAIN: other pages are mapped there now. */
static int tqp_reg_map(struct tqp_reg *reg, const struct tqp_place *place, unsigned long seq)
{
	int err = -ENODEV;

	down_read(&tqp_regs_mapping);
	if (!READ_ONCE(place->gone)) {	/* then the NIC waits for us before it goes */
		reg->odev = place->odev;
		reg->dma_dev = place->odev->dma_dev;
		if (!tqp_reg_map_pages(reg)) {
			reg->dma_dev = NULL;
			err = -ENOMEM;
		} else if (tqp_reg_publish(reg, seq)) {
			err = 0;
		} else {
			tqp_reg_unmap(reg);
			err = -EAGAIN;
		}
	}
	up_read(&tqp_regs_mapping);
	return err;
}

/* False: nothing is pinned. */
static bool tqp_reg_fill(struct tqp_reg *reg, const struct tqp_place *place)
{
	int err = -EAGAIN;

	for (u32 i = 0; i < TQP_REG_TRIES_MAX && err == -EAGAIN; i++) {
		unsigned long seq = mmu_interval_read_begin(&reg->mn);

		if (!tqp_reg_pin(reg))
			return false;
		err = tqp_reg_map(reg, place, seq);
		if (err)
			unpin_user_pages(reg->pages, reg->nr_pages);
	}
	return !err;
}

static struct tqp_reg *tqp_reg_make(const struct tqp_place *place, unsigned long begin, u32 nr)
{
	struct tqp_reg *reg = tqp_reg_alloc(nr);

	if (!reg)
		return NULL;
	if (mmu_interval_notifier_insert(&reg->mn, current->mm, begin,
					 (unsigned long)nr << PAGE_SHIFT, &tqp_reg_ops))
		goto err_discard;
	if (!tqp_reg_fill(reg, place))
		goto err_remove;
	tqp_regs_watch();
	return reg;

err_remove:
	mmu_interval_notifier_remove(&reg->mn);
err_discard:
	tqp_reg_discard(reg);
	return NULL;
}

struct tqp_reg *tqp_reg_get(const struct tqp_place *place, unsigned long begin, u32 nr, bool *kept)
{
	struct tqp_reg *reg = tqp_regs_find(READ_ONCE(place->odev), begin, nr);

	*kept = reg;
	if (reg || !tqp_regs_charge(current->mm, nr))
		return reg;
	reg = tqp_reg_make(place, begin, nr);
	if (!reg)
		tqp_regs_uncharge(current->mm, nr);
	return reg;
}

/* ---- a post has it ---- */

bool tqp_reg_open(struct tqp_reg *reg, struct tqp_place *place)
{
	bool open;

	spin_lock(&tqp_regs_lock);
	open = reg->valid && !reg->place && !READ_ONCE(place->gone);
	if (open) {
		reg->place = place;
		/* after all that the post says */
		smp_store_release(&place->post->state, cpu_to_le32(TQP_OFFLOAD_POST_OPEN));
	}
	spin_unlock(&tqp_regs_lock);
	return open;
}

void tqp_reg_close(struct tqp_reg *reg)
{
	bool dropped = false;

	spin_lock(&tqp_regs_lock);
	reg->place = NULL;
	reg->used_at = jiffies;
	if (!tqp_regs_keep(reg))
		dropped = tqp_regs_unlink(reg);
	spin_unlock(&tqp_regs_lock);
	if (dropped)
		tqp_reg_put(reg);	/* the list's; the post's is left */
}
