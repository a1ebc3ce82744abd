/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Readers' memory, pinned and mapped, that is kept from one post to the next.
 *
 * A registration is a range of one mm's addresses and the pages that were there when it
 * was made.  An MMU notifier watches the range: before the kernel changes what is mapped
 * there, the registration is invalid for good, and a post that has it is taken back, so
 * the NIC writes no byte to its pages any more (docs/sockets.md).
 */
#ifndef TQP_STREAM_REG_H
#define TQP_STREAM_REG_H

#include <linux/mmu_notifier.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/workqueue.h>

enum {
	TQP_REGS_MAX = 16,			/* of one mm */
	TQP_REGS_PAGES_MAX = 64 << (20 - 12),	/* of one mm */
	TQP_REGS_RAM_SHARE = 16,		/* of all: at most this part of the machine's memory */
	TQP_REG_TRIES_MAX = 3,			/* of pinning what changes meanwhile */
	TQP_REG_IDLE_MS = 5000,			/* nobody posted it for as long: it goes */
	TQP_REG_BITS = 6,
};

struct tqp_offload_device;
struct tqp_place;

struct tqp_reg {
	struct mmu_interval_notifier mn;	/* also says whose memory, and where */
	struct list_head node;			/* last used first, while it is kept; tqp_regs_lock */
	struct list_head all;			/* until it is freed; tqp_regs_lock */
	refcount_t refs;			/* the list's, a post's, the work's */
	struct work_struct drop_work;
	const struct tqp_offload_device *odev;	/* for which it was mapped; not to be looked into */
	struct device *dma_dev;			/* for which it is; NULL: none.  tqp_regs_mapping */
	unsigned long used_at;			/* jiffies; tqp_regs_lock */
	u32 rights;				/* tqp_regs_rights(), as it was made */
	u32 nr_pages, nr_runs;			/* a run: pages that follow each other in memory */
	bool valid;				/* implies that it is kept; tqp_regs_lock */
	bool lost;				/* a NIC may write there for ever; rising */
	struct tqp_place *place;		/* whose post has it, or NULL; tqp_regs_lock */
	struct page **pages;
	__le64 *dma;				/* of each page, for dma_dev */
};

/* The address of its first byte, and how many there are. */
static inline unsigned long tqp_reg_begin(const struct tqp_reg *reg)
{
	return reg->mn.interval_tree.start;
}

/*
 * Of current's memory at [@begin, @begin + @nr pages), page aligned, or of more; kept, or made
 * now.  NULL: it cannot be pinned, or too much is.  Sleeps; faults pages in.  @kept: it was.
 */
struct tqp_reg *tqp_reg_get(const struct tqp_place *place, unsigned long begin, u32 nr, bool *kept);
/* Process context, without mmap_lock. */
void tqp_reg_put(struct tqp_reg *reg);
/* Opens the post that @place has filled; false: what is mapped there has changed, or another has it. */
bool tqp_reg_open(struct tqp_reg *reg, struct tqp_place *place);
/* The post is taken back. */
void tqp_reg_close(struct tqp_reg *reg);
/* Not mapped any more, unless it is lost; tqp_regs_mapping. */
void tqp_reg_unmap(struct tqp_reg *reg);
/* Its NIC goes; tqp_regs_mapping, from all. */
void tqp_reg_gone(struct tqp_reg *reg);

/* ---- regs.c ---- */
extern spinlock_t tqp_regs_lock;
/* Read: who maps and unmaps, of a place that is not gone its NIC stays.  Write: a NIC goes. */
extern struct rw_semaphore tqp_regs_mapping;
/* Who maps for a place that is gone by now has done so. */
void tqp_regs_wait_mapped(void);
/* A NIC goes, no place knows it any more: when it returns, nothing is mapped for it. */
void tqp_regs_gone(const struct tqp_offload_device *odev);
/* No socket is left. */
void tqp_regs_exit(void);
/* For reg.c.  As current's locked memory; false: no more may be.  Sleeps. */
bool tqp_regs_charge(struct mm_struct *mm, u32 nr);
void tqp_regs_uncharge(struct mm_struct *mm, u32 nr);
/*
 * What the calling thread may do by its protection keys (PKRU): a copy would heed them, and whoever
 * changes them tells nobody.
 */
u32 tqp_regs_rights(void);
/* One that covers the range, made with the rights the caller has, with a reference. */
struct tqp_reg *tqp_regs_find(const struct tqp_offload_device *odev, unsigned long begin, u32 nr);
/* With the list's reference.  tqp_regs_lock. */
void tqp_regs_add(struct tqp_reg *reg);
/* Not kept any more.  True: the caller has the list's reference now.  tqp_regs_lock. */
bool tqp_regs_unlink(struct tqp_reg *reg);
/* May it stay, now that it is not posted?  tqp_regs_lock. */
bool tqp_regs_keep(const struct tqp_reg *reg);
/* It is being freed. */
void tqp_regs_forget(struct tqp_reg *reg);
/* There are some: idle ones are looked for. */
void tqp_regs_watch(void);

#endif
