// SPDX-License-Identifier: GPL-2.0
/*
 * Fill rings: the buffers that a receive queue gives to the switch.  Each ring
 * has a page pool, and its buffers are whole (compound) pages of that pool, or
 * pages of the device memory that was bound to the queue.
 * The switch looks for new buffers itself: filling rings no doorbell.
 */
#include <linux/dma-mapping.h>
#include <linux/string.h>
#include <net/page_pool/helpers.h>
#include "nupa.h"

static bool nupa_fill_one(struct nupa_fill *f, gfp_t gfp)
{
	u32 at = f->prod & (f->entries - 1);
	netmem_ref mem = page_pool_alloc_netmems(f->pool, gfp | __GFP_NOWARN);
	dma_addr_t addr;

	if (!mem)
		return false;
	addr = page_pool_get_dma_addr_netmem(mem);
	if (unlikely(f->device && !nupa_reaches(f->nupa, addr, f->buf_bytes))) {
		f->beyond = true;
		page_pool_put_full_netmem(f->pool, mem, false);
		return false;
	}
	f->mems[at] = mem;
	f->ring[at].addr = cpu_to_le64(addr);
	f->prod++;
	return true;
}

bool nupa_fill_ring(struct nupa_fill *f, gfp_t gfp)
{
	bool room = true;

	while (room && nupa_fill_waiting(f) < f->entries)
		room = nupa_fill_one(f, gfp);
	return room;
}

bool nupa_fill_up(struct nupa_fill *f, gfp_t gfp)
{
	u32 old = f->prod;
	bool room = nupa_fill_ring(f, gfp);

	if (f->prod != old)
		nupa_put_release(f->shown, f->prod);
	return room;
}

void nupa_fill_show(struct nupa_fill *f, __le32 *shown)
{
	f->shown = shown;
	nupa_put_release(shown, f->prod);
}

netmem_ref nupa_fill_take(struct nupa_fill *f)
{
	netmem_ref *at = &f->mems[f->cons++ & (f->entries - 1)];
	netmem_ref mem = *at;

	*at = 0;
	return mem;
}

void nupa_fill_drop(struct nupa_fill *f, u32 bufs, bool napi)
{
	for (; bufs; bufs--)
		page_pool_put_full_netmem(f->pool, nupa_fill_take(f), napi);
}

/*
 * A pool beside a live NAPI belongs to no NAPI before its queue starts.  Device
 * memory that is bound to the queue is the pool's in place of pages, if it may be.
 */
static struct page_pool *nupa_fill_pool(struct nupa_queue *q, u32 entries, u32 buf_bytes,
					bool may_be_device)
{
	struct page_pool_params params = {
		.flags = PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV,
		.order = get_order(buf_bytes),
		.pool_size = entries,
		.nid = dev_to_node(nupa_device(q->nupa)),
		.dev = nupa_device(q->nupa),
		.napi = q->nupa->up ? NULL : &q->napi,
		.netdev = q->nupa->netdev,
		.queue_idx = q->index,
		.dma_dir = DMA_FROM_DEVICE,
		.max_len = buf_bytes,
	};

	if (may_be_device)
		params.flags |= PP_FLAG_ALLOW_UNREADABLE_NETMEM;
	return page_pool_create(&params);
}

int nupa_fill_alloc(struct nupa_queue *q, struct nupa_fill *f, u32 entries, u32 buf_bytes,
		    bool may_be_device)
{
	int err = -ENOMEM;

	f->mems = kvcalloc(entries, sizeof(*f->mems), GFP_KERNEL);
	if (!f->mems)
		return -ENOMEM;
	f->ring = dma_alloc_coherent(nupa_device(q->nupa), entries * sizeof(*f->ring), &f->dma,
				     GFP_KERNEL | __GFP_NOWARN);
	if (!f->ring)
		goto free_mems;
	f->pool = nupa_fill_pool(q, entries, buf_bytes, may_be_device);
	if (IS_ERR(f->pool)) {
		err = PTR_ERR(f->pool);
		goto free_ring;
	}
	f->entries = entries;
	f->buf_bytes = buf_bytes;
	f->mem_bytes = PAGE_SIZE << get_order(buf_bytes);
	f->nupa = q->nupa;
	f->device = page_pool_is_unreadable(f->pool);
	f->beyond = false;
	f->prod = 0;
	f->cons = 0;
	f->again = jiffies;
	return 0;
free_ring:
	dma_free_coherent(nupa_device(q->nupa), entries * sizeof(*f->ring), f->ring, f->dma);
free_mems:
	kvfree(f->mems);
	f->mems = NULL;
	return err;
}

void nupa_fill_free(struct nupa_dev *nupa, struct nupa_fill *f, bool quiet)
{
	if (!f->entries)
		return;
	if (quiet) {
		nupa_fill_drop(f, nupa_fill_waiting(f), false);
		page_pool_destroy(f->pool);
		dma_free_coherent(nupa_device(nupa), f->entries * sizeof(*f->ring), f->ring,
				  f->dma);
	} else {
		page_pool_disable_direct_recycling(f->pool);
	}
	kvfree(f->mems);
	memset(f, 0, sizeof(*f));	/* no completion can name a buffer of it */
}
