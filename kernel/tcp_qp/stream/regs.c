// SPDX-License-Identifier: GPL-2.0
/*
 * The registrations that are kept: of which there may be so many, found by their owner and
 * address.  What nobody posted for longest makes room, and what is idle goes.
 */
#include <linux/hash.h>
#include <linux/mm.h>
#include "object/tqp.h"
#include "stream/reg.h"
#ifdef CONFIG_X86
#include <asm/pkru.h>
#endif

DEFINE_SPINLOCK(tqp_regs_lock);
DECLARE_RWSEM(tqp_regs_mapping);
static struct list_head tqp_regs[1 << TQP_REG_BITS];	/* begun by tqp_reg_bucket() */
static LIST_HEAD(tqp_regs_all);
static DECLARE_WAIT_QUEUE_HEAD(tqp_regs_wait);	/* one is freed */
static atomic_long_t tqp_regs_total = ATOMIC_LONG_INIT(0);	/* pages */

static void tqp_reg_idle_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(tqp_reg_idle, tqp_reg_idle_work);

/* tqp_regs_lock. */
static struct list_head *tqp_reg_bucket(const struct mm_struct *mm)
{
	struct list_head *bucket = &tqp_regs[hash_ptr(mm, TQP_REG_BITS)];

	if (!bucket->next)
		INIT_LIST_HEAD(bucket);
	return bucket;
}

void tqp_regs_add(struct tqp_reg *reg)
{
	lockdep_assert_held(&tqp_regs_lock);
	list_add(&reg->node, tqp_reg_bucket(reg->mn.mm));
	list_add(&reg->all, &tqp_regs_all);
}

u32 tqp_regs_rights(void)
{
#ifdef CONFIG_X86
	return read_pkru();
#else
	return 0;
#endif
}

struct tqp_reg *tqp_regs_find(const struct tqp_offload_device *odev, unsigned long begin, u32 nr)
{
	unsigned long bytes = (unsigned long)nr << PAGE_SHIFT;
	struct tqp_reg *reg, *found = NULL;
	u32 rights = tqp_regs_rights();
	struct list_head *bucket;

	spin_lock(&tqp_regs_lock);
	bucket = tqp_reg_bucket(current->mm);
	list_for_each_entry(reg, bucket, node) {
		if (reg->mn.mm == current->mm && reg->valid && !reg->place &&
		    reg->odev == odev && reg->rights == rights && tqp_reg_begin(reg) <= begin &&
		    begin + bytes <= tqp_reg_begin(reg) + ((unsigned long)reg->nr_pages << PAGE_SHIFT)) {
			found = reg;
			refcount_inc(&reg->refs);
			list_move(&reg->node, bucket);
			break;
		}
	}
	spin_unlock(&tqp_regs_lock);
	return found;
}

bool tqp_regs_unlink(struct tqp_reg *reg)
{
	lockdep_assert_held(&tqp_regs_lock);
	reg->valid = false;
	if (list_empty(&reg->node))
		return false;
	list_del_init(&reg->node);
	return true;
}

void tqp_regs_forget(struct tqp_reg *reg)
{
	spin_lock(&tqp_regs_lock);
	list_del(&reg->all);
	spin_unlock(&tqp_regs_lock);
	wake_up_all(&tqp_regs_wait);
}

/* ---- how much there may be ---- */

/* The one of @mm that nobody posted for longest, with the list's reference; NULL: all are posted. */
static struct tqp_reg *tqp_reg_oldest(const struct mm_struct *mm)
{
	struct tqp_reg *reg, *found = NULL;
	struct list_head *bucket;

	spin_lock(&tqp_regs_lock);
	bucket = tqp_reg_bucket(mm);
	list_for_each_entry_reverse(reg, bucket, node) {
		if (reg->mn.mm == mm && !reg->place) {
			found = reg;
			tqp_regs_unlink(reg);
			break;
		}
	}
	spin_unlock(&tqp_regs_lock);
	return found;
}

static bool tqp_reg_evict(const struct mm_struct *mm)
{
	struct tqp_reg *reg = tqp_reg_oldest(mm);

	if (reg)
		tqp_reg_put(reg);
	return reg;
}

/* tqp_regs_lock. */
static u32 tqp_regs_of(const struct mm_struct *mm, u32 *pages)
{
	const struct list_head *bucket = tqp_reg_bucket(mm);
	const struct tqp_reg *reg;
	u32 count = 0;

	*pages = 0;
	list_for_each_entry(reg, bucket, node) {
		if (reg->mn.mm != mm)
			continue;
		*pages += reg->nr_pages;
		count++;
	}
	return count;
}

static bool tqp_regs_full(const struct mm_struct *mm, u32 nr)
{
	u32 pages;
	bool full;

	spin_lock(&tqp_regs_lock);
	full = tqp_regs_of(mm, &pages) >= TQP_REGS_MAX || pages + nr > TQP_REGS_PAGES_MAX;
	spin_unlock(&tqp_regs_lock);
	return full;
}

void tqp_regs_uncharge(struct mm_struct *mm, u32 pages)
{
	atomic64_sub(pages, &mm->pinned_vm);
	atomic_long_sub(pages, &tqp_regs_total);
}

static bool tqp_reg_try_charge(struct mm_struct *mm, u32 nr)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	bool total, mine;

	total = atomic_long_add_return(nr, &tqp_regs_total) <= totalram_pages() / TQP_REGS_RAM_SHARE;
	mine = atomic64_add_return(nr, &mm->pinned_vm) <= limit || capable(CAP_IPC_LOCK);
	if (total && mine)
		return true;
	tqp_regs_uncharge(mm, nr);
	return false;
}

bool tqp_regs_charge(struct mm_struct *mm, u32 nr)
{
	while (tqp_regs_full(mm, nr))
		if (!tqp_reg_evict(mm))
			return false;
	while (!tqp_reg_try_charge(mm, nr))
		if (!tqp_reg_evict(mm))
			return false;
	return true;
}

/* Others lock memory, too: they find a quarter of the limit. */
bool tqp_regs_keep(const struct tqp_reg *reg)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	u32 pages;

	lockdep_assert_held(&tqp_regs_lock);
	tqp_regs_of(reg->mn.mm, &pages);
	return pages <= limit - limit / 4 || ns_capable_noaudit(&init_user_ns, CAP_IPC_LOCK);
}

/* ---- nobody needs it ---- */

/* One that is idle, with the list's reference. */
static struct tqp_reg *tqp_reg_unused(unsigned long used_before)
{
	struct tqp_reg *reg;

	spin_lock(&tqp_regs_lock);
	list_for_each_entry(reg, &tqp_regs_all, all) {
		if (list_empty(&reg->node) || reg->place || time_after(reg->used_at, used_before))
			continue;
		tqp_regs_unlink(reg);
		spin_unlock(&tqp_regs_lock);
		return reg;
	}
	spin_unlock(&tqp_regs_lock);
	return NULL;
}

static bool tqp_regs_are_left(void)
{
	bool left;

	spin_lock(&tqp_regs_lock);
	left = !list_empty(&tqp_regs_all);
	spin_unlock(&tqp_regs_lock);
	return left;
}

static void tqp_reg_idle_work(struct work_struct *work)
{
	unsigned long before = jiffies - msecs_to_jiffies(TQP_REG_IDLE_MS);
	struct tqp_reg *reg;

	while ((reg = tqp_reg_unused(before)))
		tqp_reg_put(reg);
	if (tqp_regs_are_left())
		queue_delayed_work(tqp_wq, &tqp_reg_idle, msecs_to_jiffies(TQP_REG_IDLE_MS));
}

void tqp_regs_watch(void)
{
	queue_delayed_work(tqp_wq, &tqp_reg_idle, msecs_to_jiffies(TQP_REG_IDLE_MS));
}

/* ---- a NIC goes ---- */

void tqp_regs_wait_mapped(void)
{
	down_write(&tqp_regs_mapping);
	up_write(&tqp_regs_mapping);
}

/* One that is mapped for @odev.  It stays: who frees it unmaps it before. */
static struct tqp_reg *tqp_reg_mapped(const struct tqp_offload_device *odev)
{
	struct tqp_reg *reg, *found = NULL;

	lockdep_assert_held_write(&tqp_regs_mapping);
	spin_lock(&tqp_regs_lock);
	list_for_each_entry(reg, &tqp_regs_all, all) {
		if (reg->dma_dev && reg->odev == odev) {
			found = reg;
			break;
		}
	}
	spin_unlock(&tqp_regs_lock);
	return found;
}

void tqp_regs_gone(const struct tqp_offload_device *odev)
{
	struct tqp_reg *reg;

	down_write(&tqp_regs_mapping);
	while ((reg = tqp_reg_mapped(odev)))
		tqp_reg_gone(reg);
	up_write(&tqp_regs_mapping);
}

/* No socket is left: all of them are idle. */
void tqp_regs_exit(void)
{
	struct tqp_reg *reg;

	cancel_delayed_work_sync(&tqp_reg_idle);
	while ((reg = tqp_reg_unused(jiffies)))
		tqp_reg_put(reg);
	wait_event(tqp_regs_wait, !tqp_regs_are_left());
	flush_workqueue(tqp_wq);
}
