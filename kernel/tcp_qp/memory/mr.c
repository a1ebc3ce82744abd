// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions: registration and lifetime.
 *
 * The pages stay pinned until the last reference is gone, which may be after
 * deregistration: TCP may still hold sent pages.  What the offload device maps
 * ends in tqp_mr_withdraw(), so the device may leave before the pages do.
 */
#include <linux/dma-buf.h>
#include <linux/random.h>
#include <linux/rhashtable.h>
#include <linux/slab.h>
#include "memory/memory.h"

/* MODULE_IMPORT_NS(), which takes a string since 6.13, is this */
MODULE_INFO(import_ns, "DMA_BUF");

#define TQP_MR_ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | \
		       IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_MW_BIND | IB_ACCESS_OPTIONAL)

/* Keys are random, so they are their own hash. */
static u32 tqp_mr_hash(const void *key, u32 len, u32 seed)
{
	return *(const u32 *)key;
}

static int tqp_mr_compare(struct rhashtable_compare_arg *arg, const void *obj)
{
	return ((const struct tqp_mr *)obj)->key != *(const u32 *)arg->key;
}

static const struct rhashtable_params tqp_mr_params = {
	.head_offset = offsetof(struct tqp_mr, node),
	.key_offset = offsetof(struct tqp_mr, key),
	.key_len = sizeof(u32),
	.hashfn = tqp_mr_hash,
	.obj_cmpfn = tqp_mr_compare,
	.automatic_shrinking = true,
};

int tqp_mr_table_init(struct tqp_device *dev)
{
	return rhashtable_init(&dev->mrs, &tqp_mr_params);
}

void tqp_mr_table_destroy(struct tqp_device *dev)
{
	WARN_ON_ONCE(atomic_read(&dev->mrs.nelems));
	rhashtable_destroy(&dev->mrs);
}

static void tqp_mr_free(struct tqp_mr *mr)
{
	if (mr->umem && !mr->given_up)
		ib_umem_release(mr->umem);
	if (mr->attach)
		tqp_mr_detach(mr);
	if (mr->dmabuf) {
		if (!iosys_map_is_null(&mr->vmap))
			dma_buf_vunmap_unlocked(mr->dmabuf, &mr->vmap);
		dma_buf_put(mr->dmabuf);
	}
	kvfree(mr->dma_pages);	/* else it is gone */
	kvfree(mr->pages);
	put_device(&mr->dev->ib.dev);
	kfree_rcu(mr, rcu);
}

static void tqp_mr_release_work(struct work_struct *work)
{
	tqp_mr_free(container_of(work, struct tqp_mr, release_work));
}

void tqp_mr_put_many(struct tqp_mr *mr, u32 count)
{
	rcu_read_lock();	/* once our references are gone it may go, too */
	if (refcount_sub_and_test(count, &mr->refs))
		queue_work(tqp_end_wq, &mr->release_work);
	else if (refcount_read(&mr->refs) == 1)
		wake_up_all(&mr->unused);
	rcu_read_unlock();
}

struct tqp_mr *tqp_mr_lookup(struct tqp_device *dev, u32 key)
{
	struct tqp_mr *mr = rhashtable_lookup_fast(&dev->mrs, &key, tqp_mr_params);

	/* with what tqp_mr_publish() has stored before */
	return mr && smp_load_acquire(&mr->live) ? mr : NULL;
}

struct tqp_mr *tqp_mr_get(struct tqp_device *dev, u32 key)
{
	struct tqp_mr *mr;

	rcu_read_lock();
	mr = tqp_mr_lookup(dev, key);
	if (mr && !refcount_inc_not_zero(&mr->refs))
		mr = NULL;
	rcu_read_unlock();
	return mr;
}

/* @start: where the memory begins, an address or an offset in the dma-buf. */
static struct tqp_mr *tqp_mr_alloc(struct ib_pd *ibpd, u64 start, u64 bytes, u64 iova, int access)
{
	struct tqp_device *dev = to_tqp_device(ibpd->device);
	struct tqp_mr *mr;
	u64 last;

	if (access & ~TQP_MR_ACCESS)
		return ERR_PTR(-EOPNOTSUPP);
	/* A page of the region must be a page of memory. */
	if (!bytes || bytes > 1ULL << TQP_MR_MAX_BYTES_LOG2 ||
	    check_add_overflow(iova, bytes, &last) || (start ^ iova) & ~PAGE_MASK)
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	refcount_set(&mr->refs, 1);
	INIT_WORK(&mr->release_work, tqp_mr_release_work);
	init_waitqueue_head(&mr->unused);
	/* ib_umem_release() wants it, perhaps after the device was unregistered. */
	get_device(&dev->ib.dev);
	mr->dev = dev;
	mr->uctx = to_tqp_ucontext(ibpd->uobject->context);
	mr->pdn = to_tqp_pd(ibpd)->pdn;
	mr->access = access;
	mr->iova = iova;
	mr->bytes = bytes;
	return mr;
}

/*
 * A key is all that stands between a peer and the memory: 31 random bits, so
 * that it can't be guessed from another one, nor fit a stale one's successor.
 * Nobody can look it up yet.
 */
static int tqp_mr_reserve_key(struct tqp_mr *mr)
{
	struct rhashtable *mrs = &mr->dev->mrs;
	int i, ret = -EEXIST;

	if (atomic_read(&mrs->nelems) >= TQP_MR_MAX)
		return -ENOSPC;
	for (i = 0; ret == -EEXIST && i < TQP_RANDOM_TRIES; i++) {
		mr->key = get_random_u32_inclusive(1, (TQP_MW_FIRST << 8) - 1U);
		ret = rhashtable_lookup_insert_fast(mrs, &mr->node, tqp_mr_params);
	}
	return ret;
}

static void tqp_mr_forget_key(struct tqp_mr *mr)
{
	rhashtable_remove_fast(&mr->dev->mrs, &mr->node, tqp_mr_params);
}

/* @fd, @offset: of the dma-buf, or -1 */
static int tqp_mr_publish(struct tqp_mr *mr, int fd, u64 offset)
{
	int ret;

	ret = tqp_mr_reserve_key(mr);
	if (ret)
		return ret;
	ret = tqp_mr_offload(mr, fd, offset);
	if (ret) {
		tqp_mr_forget_key(mr);
		return ret;
	}
	mr->ib.lkey = mr->key;
	mr->ib.rkey = mr->key;
	ret = tqp_mr_go_live(mr);
	if (ret) {
		tqp_mr_unload(mr);
		tqp_mr_forget_key(mr);
	}
	return ret;
}

/* A region whose memory is mapped, unless that ended with @err. */
static struct ib_mr *tqp_mr_finish(struct tqp_mr *mr, int err, int fd, u64 offset)
{
	err = err ?: tqp_mr_publish(mr, fd, offset);
	if (!err)
		return &mr->ib;
	tqp_mr_free(mr);
	return ERR_PTR(err);
}

static int tqp_mr_map_umem(struct tqp_mr *mr, u64 start)
{
	struct ib_umem *umem = ib_umem_get_va(&mr->dev->ib, start, mr->bytes, mr->access);

	if (IS_ERR(umem))
		return PTR_ERR(umem);
	mr->umem = umem;
	return tqp_mr_pages_umem(mr);
}

/*
 * The CPU needs the bytes too: it sends them, and it copies what the switch
 * delivers.  So an exporter that can't be mapped is refused.
 */
static int tqp_mr_map_dmabuf(struct tqp_mr *mr, int fd, u64 offset)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	u64 end;
	int ret;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	mr->dmabuf = dmabuf;
	if (check_add_overflow(offset, mr->bytes, &end) || end > dmabuf->size)
		return -EINVAL;
	if (tqp_dmabuf_moves(dmabuf))
		return tqp_mr_attach(mr, offset);
	ret = dma_buf_vmap_unlocked(dmabuf, &mr->vmap);
	if (ret) {
		iosys_map_clear(&mr->vmap);
		return ret == -EINVAL ? -EOPNOTSUPP : ret;
	}
	if (mr->vmap.is_iomem)
		return -EOPNOTSUPP;
	return tqp_mr_pages_vmap(mr, offset);
}

/* What can't be pinned may be a device's memory that the program has mapped. */
static int tqp_mr_map_mapped(struct tqp_mr *mr, u64 start, u64 *offset)
{
	struct dma_buf *dmabuf = tqp_dmabuf_at(start, mr->bytes, mr->access, offset);
	u64 end;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	mr->dmabuf = dmabuf;
	/* some exporters count a mapping's pages from elsewhere */
	if (check_add_overflow(*offset, mr->bytes, &end) || end > dmabuf->size ||
	    !tqp_dmabuf_moves(dmabuf))
		return -EFAULT;
	return tqp_mr_attach(mr, *offset);
}

struct ib_mr *tqp_mr_reg_user(struct ib_pd *ibpd, u64 start, u64 bytes, u64 iova, int access,
			      work_func_t taken)
{
	struct tqp_mr *mr = tqp_mr_alloc(ibpd, start, bytes, iova, access);
	u64 offset = 0;
	int ret;

	if (IS_ERR(mr))
		return ERR_CAST(mr);
	INIT_WORK(&mr->taken_work, taken);
	ret = tqp_mr_map_umem(mr, start);
	if (ret == -EFAULT && !mr->umem)
		ret = tqp_mr_map_mapped(mr, start, &offset);
	return tqp_mr_finish(mr, ret, -1, offset);
}

struct ib_mr *tqp_mr_reg_dmabuf(struct ib_pd *ibpd, u64 offset, u64 bytes, u64 iova, int fd,
				int access, work_func_t taken)
{
	struct tqp_mr *mr = tqp_mr_alloc(ibpd, offset, bytes, iova, access);

	if (IS_ERR(mr))
		return ERR_CAST(mr);
	INIT_WORK(&mr->taken_work, taken);
	return tqp_mr_finish(mr, tqp_mr_map_dmabuf(mr, fd, offset), fd, offset);
}

/* Pinned as long as somebody may copy, though nobody waited for him. */
static void tqp_mr_put_rcu(struct rcu_head *rcu)
{
	tqp_mr_put(container_of(rcu, struct tqp_mr, rcu));
}

void tqp_mr_withdraw(struct tqp_mr *mr)
{
	/* No new user; the key stays taken while the switch knows it. */
	WRITE_ONCE(mr->live, false);
	tqp_mr_unload(mr);
	if (mr->attach)
		tqp_mr_detach(mr);
	/* Whoever looked it up under RCU and copies to it. */
	tqp_end_readers(mr->dev);
}

void tqp_mr_forget(struct tqp_mr *mr)
{
	tqp_mr_forget_key(mr);
	call_rcu(&mr->rcu, tqp_mr_put_rcu);
}
