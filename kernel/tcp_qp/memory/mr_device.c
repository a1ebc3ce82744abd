// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of a device's own memory: dma-bufs whose exporter may take them back
 * (it can pin).  The switch reaches them by bus addresses.  TCP sends from them
 * by the struct pages that the exporter's vmap leads to, which no CPU reads on
 * the way to the offload device; what the switch delivers instead of placing,
 * the CPU copies there, counted as all it copies.
 *
 * Taking back (invalidate_mappings, under dma_resv): no new use, and the switch forgets
 * the region, before it returns.  What TCP has of it may be in a driver's hands:
 * taken_work ends those connections and waits for that, and then gives the CPU's
 * mapping back, for which the exporter waits.  A switch that hangs forgets nothing: then
 * the memory stays pinned, mapped and its exporter's for ever, that nobody else gets it.
 *
 * Locks: dma_resv is around the command ring of the offload device; no socket is
 * locked under it.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/slab.h>
#include "memory/memory.h"

enum {
	TQP_DEVICE_SHIFT_MAX = 30,
};

bool tqp_dmabuf_moves(const struct dma_buf *dmabuf)
{
	return dmabuf->ops->pin;
}

/* dma_resv */
static void tqp_mr_unload_locked(struct tqp_mr *mr)
{
	struct tqp_offload_device *odev = mr->dev->offload;

	if (mr->offloaded)
		mr->given_up = !tqp_end_is_forgotten(mr->dev, odev->ops->mr_dereg(odev, mr->key));
	mr->offloaded = false;
	if (!mr->sgt)
		return;
	if (mr->given_up) {
		get_dma_buf(mr->dmabuf);
	} else {
		dma_buf_unmap_attachment(mr->attach, mr->sgt, DMA_BIDIRECTIONAL);
		dma_buf_unpin(mr->attach);
	}
	mr->sgt = NULL;
}

static void tqp_mr_invalidate(struct dma_buf_attachment *attach)
{
	struct tqp_mr *mr = attach->importer_priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	/* before it is mapped nobody knows of it: an exporter moves it to where it can be pinned */
	if (!mr->sgt)
		return;
	mr->taken = true;
	WRITE_ONCE(mr->live, false);
	tqp_mr_unload_locked(mr);
	queue_work(tqp_end_wq, &mr->taken_work);
}

static const struct dma_buf_attach_ops tqp_mr_attach_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = tqp_mr_invalidate,
};

/* dma_resv, pinned */
static int tqp_mr_map_pinned(struct tqp_mr *mr, u64 offset)
{
	struct sg_table *sgt = dma_buf_map_attachment(mr->attach, DMA_BIDIRECTIONAL);
	int ret;

	if (IS_ERR(sgt))
		return PTR_ERR(sgt);
	mr->sgt = sgt;
	/* pinned and under the lock: it is still there, and the core warns of a failure */
	ret = dma_buf_vmap(mr->dmabuf, &mr->vmap);
	if (ret) {
		iosys_map_clear(&mr->vmap);
		return ret == -EINVAL ? -EOPNOTSUPP : ret;
	}
	return mr->vmap.is_iomem ? -EOPNOTSUPP : tqp_mr_pages_vmap(mr, offset);
}

int tqp_mr_attach(struct tqp_mr *mr, u64 offset)
{
	struct dma_buf_attachment *attach;
	int ret;

	if (!mr->dev->offload)
		return -EOPNOTSUPP;
	attach = dma_buf_dynamic_attach(mr->dmabuf, mr->dev->offload->dma_dev, &tqp_mr_attach_ops,
					mr);
	if (IS_ERR(attach))
		return PTR_ERR(attach);
	mr->attach = attach;
	dma_resv_lock(mr->dmabuf->resv, NULL);
	ret = dma_buf_pin(attach);
	if (!ret) {
		ret = tqp_mr_map_pinned(mr, offset);
		if (ret && !mr->sgt)
			dma_buf_unpin(attach);
	}
	dma_resv_unlock(mr->dmabuf->resv);
	return ret;		/* tqp_mr_free() takes back what there is */
}

/* ---- the switch ---- */

/* Calls @piece for each contiguous part of the region's pages, in order. */
static void tqp_mr_each_piece(const struct tqp_mr *mr, u64 offset,
			      void (*piece)(void *arg, u64 at, dma_addr_t addr, u64 bytes),
			      void *arg)
{
	u64 first = round_down(offset, PAGE_SIZE), end = round_up(offset + mr->bytes, PAGE_SIZE);
	u64 iova = round_down(mr->iova, PAGE_SIZE), cur = 0;
	struct scatterlist *sg;
	int i;

	for_each_sgtable_dma_sg(mr->sgt, sg, i) {
		u64 from = max(first, cur), to = min(end, cur + sg_dma_len(sg));

		if (from < to)
			piece(arg, iova + from - first, sg_dma_address(sg) + from - cur, to - from);
		cur += sg_dma_len(sg);
	}
}

static void tqp_piece_bits(void *arg, u64 at, dma_addr_t addr, u64 bytes)
{
	u64 *bits = arg;

	*bits |= at | addr | bytes;
}

struct tqp_table {
	dma_addr_t *pages;
	u32 count, max;
	u8 shift;
};

static void tqp_piece_pages(void *arg, u64 at, dma_addr_t addr, u64 bytes)
{
	struct tqp_table *table = arg;

	for (u64 done = 0; done < bytes && table->count < table->max; done += 1ULL << table->shift)
		table->pages[table->count++] = addr + done;
}

/* dma_resv, mapped */
static int tqp_mr_tell_device(struct tqp_mr *mr, u64 offset)
{
	u64 bits = BIT_ULL(TQP_DEVICE_SHIFT_MAX);
	u64 bytes = round_up(offset + mr->bytes, PAGE_SIZE) - round_down(offset, PAGE_SIZE);
	struct tqp_table table = {};
	int ret;

	tqp_mr_each_piece(mr, offset, tqp_piece_bits, &bits);
	table.shift = __ffs64(bits);
	if (table.shift < PAGE_SHIFT)	/* an exporter's oddity */
		return -EINVAL;
	table.max = bytes >> table.shift;
	table.pages = kvmalloc_array(table.max, sizeof(*table.pages), GFP_KERNEL_ACCOUNT);
	if (!table.pages)
		return -ENOMEM;
	tqp_mr_each_piece(mr, offset, tqp_piece_pages, &table);
	ret = table.count == table.max ?
		      tqp_mr_table_at(mr, table.pages, table.count, table.shift) : -EINVAL;
	kvfree(table.pages);
	return ret;
}

/* Refused by the switch, it is refused altogether: there is no window to that memory, or no room. */
int tqp_mr_offload_attached(struct tqp_mr *mr, u64 offset)
{
	int ret;

	dma_resv_lock(mr->dmabuf->resv, NULL);
	ret = mr->taken ? -ENODEV : tqp_mr_tell_device(mr, offset);
	mr->offloaded = !ret;
	dma_resv_unlock(mr->dmabuf->resv);
	if (ret)
		tqp_count(mr->dev, TQP_C_offload_refused, 1);
	return ret == -EFAULT ? -EOPNOTSUPP : ret;
}

/* Taken a moment later, it is a region, and dead. */
int tqp_mr_go_live(struct tqp_mr *mr)
{
	bool live;

	if (!mr->attach) {
		smp_store_release(&mr->live, true);	/* after all that a user of the key looks at */
		return 0;
	}
	dma_resv_lock(mr->dmabuf->resv, NULL);
	live = !mr->taken;
	smp_store_release(&mr->live, live);	/* the same */
	dma_resv_unlock(mr->dmabuf->resv);
	return live ? 0 : -ENODEV;
}

void tqp_mr_unload_attached(struct tqp_mr *mr)
{
	dma_resv_lock(mr->dmabuf->resv, NULL);
	tqp_mr_unload_locked(mr);
	dma_resv_unlock(mr->dmabuf->resv);
}

void tqp_mr_detach(struct tqp_mr *mr)
{
	tqp_mr_unload_attached(mr);
	dma_buf_detach(mr->dmabuf, mr->attach);
	mr->attach = NULL;
	WRITE_ONCE(mr->withdrawn, true);
	wake_up_all(&mr->unused);
	flush_work(&mr->taken_work);
}

void tqp_mr_let_go(struct tqp_mr *mr)
{
	struct iosys_map map = mr->vmap;

	iosys_map_clear(&mr->vmap);
	if (!iosys_map_is_null(&map))
		dma_buf_vunmap_unlocked(mr->dmabuf, &map);
}
