// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions: registration and lifetime.
 *
 * The pages stay pinned until the last reference is gone, which may be after
 * deregistration: TCP may still hold sent pages.  What the offload device maps
 * ends in tqp_dereg_mr(), so the device may leave before the pages do.
 */
#include <linux/dma-buf.h>
#include <linux/random.h>
#include <linux/slab.h>
#include "conn.h"

MODULE_IMPORT_NS(DMA_BUF);

#define TQP_MR_ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | \
		       IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_MW_BIND | IB_ACCESS_OPTIONAL)

/* Room for the index above the key's salt. */
static_assert(TQP_MR_MAX < 1 << 24);

static void tqp_mr_free(struct tqp_mr *mr)
{
	if (mr->umem)
		ib_umem_release(mr->umem);
	if (mr->dmabuf) {
		if (!iosys_map_is_null(&mr->vmap))
			dma_buf_vunmap_unlocked(mr->dmabuf, &mr->vmap);
		dma_buf_put(mr->dmabuf);
	}
	kvfree(mr->pages);
	put_device(&mr->dev->ib.dev);
	kfree_rcu(mr, rcu);
}

static void tqp_mr_release_work(struct work_struct *work)
{
	tqp_mr_free(container_of(work, struct tqp_mr, release_work));
}

void tqp_mr_put(struct tqp_mr *mr)
{
	rcu_read_lock();	/* once our reference is gone it may go, too */
	if (refcount_dec_and_test(&mr->refs))
		queue_work(tqp_end_wq, &mr->release_work);
	else if (refcount_read(&mr->refs) == 1)
		wake_up_all(&mr->unused);
	rcu_read_unlock();
}

struct tqp_mr *tqp_mr_lookup(struct tqp_device *dev, u32 key)
{
	struct tqp_mr *mr = xa_load(&dev->mrs, key >> 8);

	return mr && mr->key == key ? mr : NULL;
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

/* An index nobody can look up yet, and a salt, so that a stale key does not fit its successor. */
static int tqp_mr_reserve_key(struct tqp_mr *mr)
{
	struct tqp_device *dev = mr->dev;
	u32 index;
	int ret;

	ret = xa_alloc_cyclic(&dev->mrs, &index, XA_ZERO_ENTRY, XA_LIMIT(1, TQP_MR_MAX),
			      &dev->next_mr, GFP_KERNEL);
	if (ret < 0)
		return ret;
	mr->key = index << 8 | get_random_u8();
	return 0;
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
		xa_erase(&mr->dev->mrs, mr->key >> 8);
		return ret;
	}
	mr->ib.lkey = mr->key;
	mr->ib.rkey = mr->key;
	/* Replaces the reserved entry: allocates nothing, can't fail. */
	xa_store(&mr->dev->mrs, mr->key >> 8, mr, GFP_KERNEL);
	return 0;
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
	struct ib_umem *umem = ib_umem_get(&mr->dev->ib, start, mr->bytes, mr->access);

	if (IS_ERR(umem))
		return PTR_ERR(umem);
	mr->umem = umem;
	return tqp_mr_pages_umem(mr);
}

struct ib_mr *tqp_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 bytes, u64 iova, int access,
			      struct ib_udata *udata)
{
	struct tqp_mr *mr = tqp_mr_alloc(ibpd, start, bytes, iova, access);

	if (IS_ERR(mr))
		return ERR_CAST(mr);
	return tqp_mr_finish(mr, tqp_mr_map_umem(mr, start), -1, 0);
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
	ret = dma_buf_vmap_unlocked(dmabuf, &mr->vmap);
	if (ret) {
		iosys_map_clear(&mr->vmap);
		return ret == -EINVAL ? -EOPNOTSUPP : ret;
	}
	if (mr->vmap.is_iomem)
		return -EOPNOTSUPP;
	return tqp_mr_pages_vmap(mr, offset);
}

struct ib_mr *tqp_reg_dmabuf_mr(struct ib_pd *ibpd, u64 offset, u64 bytes, u64 iova, int fd,
				int access, struct uverbs_attr_bundle *attrs)
{
	struct tqp_mr *mr = tqp_mr_alloc(ibpd, offset, bytes, iova, access);

	if (IS_ERR(mr))
		return ERR_CAST(mr);
	return tqp_mr_finish(mr, tqp_mr_map_dmabuf(mr, fd, offset), fd, offset);
}

/* Pinned as long as somebody may copy, though nobody waited for him. */
static void tqp_mr_put_rcu(struct rcu_head *rcu)
{
	tqp_mr_put(container_of(rcu, struct tqp_mr, rcu));
}

int tqp_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct tqp_mr *mr = to_tqp_mr(ibmr);
	struct xarray *mrs = &mr->dev->mrs;
	u32 index = mr->key >> 8;

	/* No new user; the index stays taken while the switch knows it. */
	xa_store(mrs, index, XA_ZERO_ENTRY, GFP_KERNEL);
	tqp_mr_unload(mr);
	/* Whoever looked it up under RCU and copies to it. */
	tqp_end_readers(mr->dev);
	tqp_mr_revoke(mr);
	xa_erase(mrs, index);
	call_rcu(&mr->rcu, tqp_mr_put_rcu);
	return 0;
}
