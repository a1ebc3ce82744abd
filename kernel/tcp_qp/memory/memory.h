/* SPDX-License-Identifier: GPL-2.0 */
/* Regions and windows: their lives, and who may touch what. */
#ifndef TQP_MEMORY_H
#define TQP_MEMORY_H

#include "conn/conn.h"

/* ---- mr.c: registration and lifetime ---- */
/* @taken: of mr->taken_work, when its memory was taken back; it ends with tqp_mr_let_go(). */
struct ib_mr *tqp_mr_reg_user(struct ib_pd *ibpd, u64 start, u64 bytes, u64 iova, int access,
			      work_func_t taken);
struct ib_mr *tqp_mr_reg_dmabuf(struct ib_pd *ibpd, u64 offset, u64 bytes, u64 iova, int fd,
				int access, work_func_t taken);
/* No new use of it from here on, nor one under RCU; sleeps. */
void tqp_mr_withdraw(struct tqp_mr *mr);
/* Its key is free, and it is gone with its last user. */
void tqp_mr_forget(struct tqp_mr *mr);

/* ---- mr_pages.c: what the CPU reaches, and what the switch reaches ---- */
int tqp_mr_pages_umem(struct tqp_mr *mr);
int tqp_mr_pages_vmap(struct tqp_mr *mr, u64 offset);
int tqp_mr_offload(struct tqp_mr *mr, int fd, u64 offset);
/* Synchronous: the switch touches the memory no more. */
void tqp_mr_unload(struct tqp_mr *mr);

int tqp_mr_table_at(struct tqp_mr *mr, const dma_addr_t *pages, u32 nr_pages, u8 page_shift);

/* ---- mr_device.c: memory of a device, which that may take back at any time ---- */
/* Is it such memory?  It can be registered for an offload device only: a CPU is not to carry it. */
bool tqp_dmabuf_moves(const struct dma_buf *dmabuf);
int tqp_mr_attach(struct tqp_mr *mr, u64 offset);
int tqp_mr_offload_attached(struct tqp_mr *mr, u64 offset);
int tqp_mr_go_live(struct tqp_mr *mr);		/* of any memory: -ENODEV, it was taken meanwhile */
void tqp_mr_unload_attached(struct tqp_mr *mr);
void tqp_mr_detach(struct tqp_mr *mr);		/* it is not taken any more; nor being taken */
/* Nobody uses taken memory any more: the CPU's mapping goes, too. */
void tqp_mr_let_go(struct tqp_mr *mr);

/* ---- mr_mapped.c: such memory, named by where a program has it mapped ---- */
void tqp_mr_mapped_init(void);
/* With a reference; -EFAULT: no dma-buf is mapped there whole, with the rights that @access needs. */
struct dma_buf *tqp_dmabuf_at(u64 start, u64 bytes, int access, u64 *offset);

/* ---- mr_access.c ---- */
/* RCU read side; NULL if there is no such key. */
int tqp_mr_table_init(struct tqp_device *dev);
void tqp_mr_table_destroy(struct tqp_device *dev);
struct tqp_mr *tqp_mr_lookup(struct tqp_device *dev, u32 key);
/* The same with a reference that outlives the RCU section. */
struct tqp_mr *tqp_mr_get(struct tqp_device *dev, u32 key);
void tqp_mr_put_many(struct tqp_mr *mr, u32 count);	/* any context */
static inline void tqp_mr_put(struct tqp_mr *mr)
{
	tqp_mr_put_many(mr, 1);
}

/* 0, or -EACCES (PD or access), -EFAULT (bounds).  No sum can wrap. */
static inline int tqp_mr_check(const struct tqp_mr *mr, u32 pdn, u64 addr, u64 bytes, int access)
{
	u64 offset = addr - mr->iova;

	if (mr->pdn != pdn || (mr->access & access) != access)
		return -EACCES;
	if (addr < mr->iova || offset > mr->bytes || bytes > mr->bytes - offset)
		return -EFAULT;
	return 0;
}

/* Kernel address of checked @addr; *@run is set to the bytes contiguous from there, at most @bytes. */
void *tqp_mr_kaddr(const struct tqp_mr *mr, u64 addr, u32 bytes, u32 *run);
/* The bytes of @sge to @to; RCU keeps the pages pinned, as in place.c.  False: no right to them. */
bool tqp_mr_copy_from(struct tqp_device *dev, u32 pdn, const struct ib_sge *sge, u8 *to);
/* The same, but not of a device's own memory, which is slow to read. */
bool tqp_mr_copy_from_ram(struct tqp_device *dev, u32 pdn, const struct ib_sge *sge, u8 *to);
/* How much more of the region is in the page in which the byte before @addr lies. */
static inline u32 tqp_mr_room(const struct tqp_mr *mr, u64 addr)
{
	return -addr & ((1ULL << mr->page_shift) - 1);
}

/* Where checked @addr is: the small page, and the bytes from there to the end of the region's page. */
static inline struct page *tqp_mr_page(const struct tqp_mr *mr, u64 addr, u32 *run)
{
	u64 within_mask = (1ULL << mr->page_shift) - 1;
	u64 at = addr - (mr->iova & ~within_mask);
	u64 within = at & within_mask;

	*run = within_mask + 1 - within;
	return nth_page(mr->pages[at >> mr->page_shift], within >> PAGE_SHIFT);
}

/*
 * Page fragments of checked [addr, addr + bytes), physically contiguous pages
 * joined, behind the @used ones that are in @bv.  Returns how many of @max are
 * used now; *@done is set to bytes covered.
 */
static inline u32 tqp_mr_bvecs(const struct tqp_mr *mr, u64 addr, u32 bytes, struct bio_vec *bv,
			       u32 used, u32 max, u32 *done)
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

/* ---- mw.c: memory windows ---- */
struct tqp_binding;

struct tqp_window {
	struct rcu_head rcu;
	enum ib_mw_type type;
	u32 pdn;
	u32 index;			/* of dev->mws: its keys without their low 8 bits */
	spinlock_t lock;
	u32 key;			/* under lock */
	bool dead;			/* under lock: deallocated */
	struct tqp_binding __rcu *binding;	/* NULL: not bound */
	refcount_t refs;		/* the verbs object's, and each binding's that is not gone */
	wait_queue_head_t unused;	/* refs fell to 1 */
};

int tqp_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
/* No new use of it from here on, nor one under RCU; its keys stay taken; sleeps. */
void tqp_mw_withdraw(struct tqp_device *dev, struct tqp_window *window);
/* Its keys are free, and it is gone with its last user. */
void tqp_mw_forget(struct tqp_device *dev, struct tqp_window *window);
void tqp_mw_drop_qp(struct tqp_device *dev, u32 qpn);

/* ---- place.c ---- */
/*
 * Copy @bytes at @skb_off of @skb to offset @at of the current receive.
 * 0, or an enum ib_wc_status to fail the receive with.
 */
enum ib_wc_status tqp_place_copy(struct tqp_conn *conn, struct sk_buff *skb, u32 skb_off, u32 at,
				 u32 bytes);
/* The same to [addr, addr + bytes) of @key, if it allows @access. */
enum ib_wc_status tqp_place_at(struct tqp_conn *conn, struct sk_buff *skb, u32 skb_off, u32 key,
			       u64 addr, u32 bytes, int access);

/* ---- mw.c ---- */
/*
 * RCU read side: the region that @key, also a window's, opens for [va, va +
 * bytes) with this access, or NULL.
 */
struct tqp_mr *tqp_key_mr(const struct tqp_conn *conn, u32 key, u64 va, u64 bytes, int access);
/* The same with references that outlive the RCU section; *@binding: the window's, or NULL. */
struct tqp_mr *tqp_key_pin(const struct tqp_conn *conn, u32 key, u64 va, u64 bytes, int access,
			   struct tqp_binding **binding);
void tqp_binding_put(struct tqp_binding *binding);	/* any context */
/* *@old is what was bound before: if there was anything, tqp_mw_retire() it. */
enum ib_wc_status tqp_mw_bind(struct tqp_conn *conn, const struct tqp_mw_bind *bind,
			      struct tqp_binding **old);
/*
 * @put drops a reference to @msg, which took @old's place, when nobody can be copying by @old's
 * key, nor TCP send what a READ by it asked for; any context.
 */
void tqp_mw_retire(struct tqp_binding *old, struct tqp_tx_msg *msg,
		   void (*put)(struct tqp_tx_msg *msg));
/* LOCAL_INV here or a SEND_WITH_INV of the peer's; sk lock.  False: no window of this QP's. */
bool tqp_mw_invalidate(struct tqp_conn *conn, u32 key);

#endif
