/* SPDX-License-Identifier: GPL-2.0 */
/*
 * nupa_accel: the driver of an accelerator to test with, and of a window to the
 * switch's pool of memory, which is laid out alike (nupa_pool_hw.h).
 *
 *   pci.c     the PCI function: probe, reset, removal
 *   ring.c    commands: batches that sleep for an interrupt
 *   memory.c  its memory: ranges, struct pages, the offer to NIC drivers
 *   buffer.c  a range as a dma-buf: who has it, and taking it back
 *   lease.c   ranges of a pool, which the device allocates
 *   file.c    /dev/nupa_accelN
 *   pool.c    /dev/nupa_poolN
 *
 * Lives.  struct nupa_accel lives until the last open file and buffer are gone,
 * the PCI function only until it is removed (gone).  A batch of commands has
 * references to the buffers that it names until the device has executed it,
 * whatever becomes of the process that submitted it.
 *
 * Locks, outermost first:
 *   accel->ring_lock       order of batches (sleeps)
 *   accel->buffers_lock    list of buffers (sleeps)
 *   dma_resv of a buffer   taken, maps; the importers' invalidate_mappings runs under it
 *   buffer->fault_lock     page faults against being taken
 *   accel->pages_lock      which pages are used (sleeps)
 *   nupa_kept_lock         ranges that importers of taken buffers may still reach (sleeps)
 *   accel->slot_lock       slots, indices, gone; irqs off
 *   accel->bell_lock       bells; irqs off
 */
#ifndef NUPA_ACCEL_DRIVER_H
#define NUPA_ACCEL_DRIVER_H

#include <linux/dma-buf.h>
#include <linux/kref.h>
#include <linux/memremap.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <nupa_hbm.h>
#include <tcp_qp/nupa_accel.h>
#include <tcp_qp/nupa_pool.h>

#define NUPA_ACCEL_NAME "nupa_accel"
#define NUPA_POOL_NAME "nupa_pool"

enum {
	NUPA_ACCEL_RESET_TIMEOUT_MS = 3000,
	NUPA_ACCEL_RESET_POLL_US = 200,
	NUPA_ACCEL_TAKE_WARN_MS = 10000,	/* a kernel mapping that does not end is told every so often */
	NUPA_ACCEL_SG_BYTES = 1 << 30,		/* of one scatterlist entry */
	NUPA_POOL_HBM_ID = 1 << 16,		/* auxiliary devices of pools are numbered from here */
};

struct nupa_batch;
struct eventfd_ctx;

struct nupa_accel_slot {
	struct nupa_batch *batch;
	u32 index;		/* in the batch */
};

struct nupa_accel {
	struct kref ref;
	bool pool;			/* a window to a pool: ranges are leases, and zeroed by the device */
	struct pci_dev *pdev;		/* until gone */
	void __iomem *bar0;
	struct nupa_accel_regs *regs;	/* plain memory that the device shares */
	struct nupa_ring_ctl *ring;
	struct nupa_accel_cmd *cmds;
	struct nupa_accel_comp *comps;
	u64 id;
	u64 pool_id;			/* of a window */

	phys_addr_t memory;
	u64 memory_bytes;
	struct mutex pages_lock;
	unsigned long *used_pages;	/* a bit each */
	u64 free_bytes;
	struct dev_pagemap pgmap;
	bool paged;			/* it has struct pages: the kernel may map it, and TCP send from it */
	struct nupa_hbm *hbm;

	struct mutex ring_lock;
	spinlock_t slot_lock;
	struct nupa_accel_slot slots[NUPA_ACCEL_ENTRIES];
	u32 prod, taken;
	bool gone;
	wait_queue_head_t room;		/* in the ring */

	struct mutex buffers_lock;
	struct list_head buffers;
	u32 nr_buffers;
	atomic_t maps;			/* of all buffers, for the kernel */
	wait_queue_head_t unmapped;

	atomic64_t commands, cpu_mapped_bytes, kernel_maps;
	atomic64_t leased_bytes;

	spinlock_t bell_lock;
	struct {
		struct eventfd_ctx *ctx;
		struct file *owner;
		u32 seen;
	} bells[NUPA_ACCEL_BELLS];

	struct miscdevice misc;
	char name[24];
	int number;
};

struct nupa_buffer {
	struct nupa_accel *accel;
	struct dma_buf *dmabuf;
	struct list_head node;		/* accel->buffers */
	phys_addr_t at;
	size_t bytes;
	bool taken;			/* dma_resv, and fault_lock: nobody has it any more */
	struct rw_semaphore fault_lock;
	atomic_t maps;			/* for the kernel */
	u32 pins;			/* of importers; dma_resv */
	struct list_head kept;		/* memory.c: its lock */
	struct work_struct give_work;	/* of a lease */
	u64 token;			/* under which the lease is offered, or was; 0: never */
};

/* ---- pci.c ---- */
void nupa_accel_get(struct nupa_accel *accel);
void nupa_accel_put(struct nupa_accel *accel);
static inline void nupa_accel_doorbell(struct nupa_accel *accel)
{
	writel(NUPA_PEER_SWITCH << 16, accel->bar0 + NUPA_BAR0_DOORBELL);
}

/* ---- ring.c ---- */
/* A batch of up to @max commands, with one reference. */
struct nupa_batch *nupa_batch_alloc(u32 max, gfp_t gfp);
void nupa_batch_put(struct nupa_batch *batch);		/* any context */
/* Takes over a reference to each of @dmabufs, also when it fails. */
int nupa_batch_add(struct nupa_batch *batch, const struct nupa_accel_cmd *cmd,
		   struct dma_buf *const dmabufs[3]);
/* Sleeps until all were executed: 0, -EINTR (those that were not begun are void), -ENODEV. */
int nupa_batch_submit(struct nupa_accel *accel, struct nupa_batch *batch);
void nupa_batch_result(const struct nupa_batch *batch, u32 i, u32 *status, u64 *result);
void nupa_ring_init(struct nupa_accel *accel);
void nupa_ring_start(struct nupa_accel *accel);		/* before the device is enabled */
void nupa_ring_poll(struct nupa_accel *accel);		/* the interrupt */
void nupa_ring_end(struct nupa_accel *accel);		/* the device executes no more: all fail */

/* ---- memory.c ---- */
int nupa_memory_init(struct nupa_accel *accel);
void nupa_memory_exit(struct nupa_accel *accel);	/* struct pages go; nobody maps them */
int nupa_memory_offer(struct nupa_accel *accel);
void nupa_memory_withdraw(struct nupa_accel *accel);
/* Ranges of whole pages, by their physical addresses; 0: there is none. */
phys_addr_t nupa_memory_alloc(struct nupa_accel *accel, size_t bytes);
void nupa_memory_free(struct nupa_accel *accel, phys_addr_t at, size_t bytes);
/*
 * The range of a buffer that was taken while somebody had it pinned: until he lets go, whatever
 * accelerator lies there gives it to nobody.  Both may be called more than once.
 */
void nupa_range_keep(struct nupa_buffer *buffer);
void nupa_range_let_go(struct nupa_buffer *buffer);
/* The end of a kept range that overlaps with this one; 0: there is none. */
phys_addr_t nupa_range_kept(phys_addr_t at, size_t bytes);

/* ---- buffer.c ---- */
/* A new one, all zero, with a reference; or, with a @token, the lease that is offered so. */
struct dma_buf *nupa_buffer_create(struct nupa_accel *accel, u64 bytes, u64 token);
/* A lease is anybody's who is told @token: 0, -EBUSY (somebody imports it), -ENODEV, -EINTR, -EIO. */
int nupa_buffer_offer(struct nupa_buffer *buffer, u64 *token);
/* The buffer behind @fd, with a reference to its dma-buf, if it is of this accelerator and not taken. */
struct nupa_buffer *nupa_buffer_get(struct nupa_accel *accel, int fd);
int nupa_buffer_take(struct nupa_buffer *buffer);	/* 0, or -EINTR: it is taken, but still mapped */
void nupa_buffers_take_all(struct nupa_accel *accel);
void nupa_buffer_gone(struct nupa_buffer *buffer);	/* its range is given back */

/* ---- lease.c ---- */
int nupa_lease_init(void);
void nupa_lease_exit(void);	/* no device is left: what is under way has ended */
/*
 * 0, -ENOSPC, -EDQUOT, -EBUSY (the range is kept), -EINTR (a fatal signal), -ENODEV, -EIO.
 * @at: physical.  A new one; or, with a @token, the one that is offered so, else -ENOENT.
 */
int nupa_lease_take(struct nupa_accel *accel, u64 bytes, u64 token, phys_addr_t *at);
/* 0, -EBUSY, -EINTR (it may be offered, but nobody knows how), -ENODEV, -EIO. */
int nupa_lease_offer(struct nupa_accel *accel, phys_addr_t at, u64 *token);
/* Any context; nupa_buffer_gone() follows. */
void nupa_lease_give(struct nupa_buffer *buffer);

/* ---- file.c ---- */
int nupa_file_register(struct nupa_accel *accel);
void nupa_file_unregister(struct nupa_accel *accel);
void nupa_bells_rang(struct nupa_accel *accel);		/* the interrupt */
int nupa_file_alloc(struct nupa_accel *accel, u64 bytes, u64 token);	/* a descriptor of nupa_buffer_create()'s */

/* ---- pool.c ---- */
long nupa_pool_ioctl(struct nupa_accel *accel, unsigned int cmd, void __user *arg);
int nupa_pool_mmap(struct nupa_accel *accel, struct vm_area_struct *vma);

#endif
