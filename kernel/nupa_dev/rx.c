// SPDX-License-Identifier: GPL-2.0
/*
 * Receive rings.  All of it runs in the queue's NAPI, but for set-up.  The
 * switch looks for new buffers itself: refilling rings no doorbell.
 */
#include <linux/dma-mapping.h>
#include <net/page_pool/helpers.h>
#include "nupa.h"

static u32 nupa_rx_filled(const struct nupa_rxq *rx)
{
	return rx->fill_prod - rx->fill_cons;
}

static bool nupa_rx_fill_one(struct nupa_rxq *rx, gfp_t gfp)
{
	u32 at = rx->fill_prod & (rx->entries - 1);
	struct page *page = page_pool_alloc_pages(rx->pool, gfp | __GFP_NOWARN);

	if (!page)
		return false;
	rx->pages[at] = page;
	rx->fill[at].addr = cpu_to_le64(page_pool_get_dma_addr(page));
	rx->fill_prod++;
	return true;
}

static void nupa_rx_refill(struct nupa_queue *q)
{
	struct nupa_rxq *rx = &q->rx;
	u32 old = rx->fill_prod;
	bool room = true;

	if (rx->entries - nupa_rx_filled(rx) < NUPA_RX_REFILL_MIN)
		return;
	while (room && nupa_rx_filled(rx) < rx->entries)
		room = nupa_rx_fill_one(rx, GFP_ATOMIC);
	if (rx->fill_prod != old)
		nupa_put_release(&rx->ctl->fill_prod, rx->fill_prod);
	if (room)
		return;
	nupa_rx_count(q, NUPA_RXS_alloc_failures, 1);
	/* with few buffers left no packet may come that would try again */
	if (nupa_rx_filled(rx) < rx->entries / 2)
		mod_timer(&rx->retry, jiffies + msecs_to_jiffies(NUPA_RX_RETRY_MS));
}

static void nupa_rx_retry(struct timer_list *timer)
{
	struct nupa_queue *q = container_of(timer, struct nupa_queue, rx.retry);

	napi_schedule(&q->napi);
}

/* @napi: called from our own, so the pool's lockless cache may take them. */
static void nupa_rx_put_bufs(struct nupa_rxq *rx, u32 bufs, bool napi)
{
	for (; bufs; bufs--) {
		struct page **page = &rx->pages[rx->fill_cons++ & (rx->entries - 1)];

		page_pool_put_full_page(rx->pool, *page, napi);
		*page = NULL;
	}
}

void nupa_rx_drop_bufs(struct nupa_queue *q, u32 bufs)
{
	nupa_rx_put_bufs(&q->rx, bufs, true);
}

/* The only look at the entry in memory that the switch writes. */
static void nupa_rx_copy_desc(const struct nupa_rxq *rx, struct nupa_rx_desc *desc)
{
	const struct nupa_rx_comp *comp = &rx->comp[rx->comp_cons & (rx->entries - 1)];

	desc->flags = le16_to_cpu(READ_ONCE(comp->flags));
	desc->bufs = le16_to_cpu(READ_ONCE(comp->bufs));
	desc->header_bytes = le16_to_cpu(READ_ONCE(comp->header_bytes));
	desc->gso_size = le16_to_cpu(READ_ONCE(comp->gso_size));
	desc->gso_segs = le16_to_cpu(READ_ONCE(comp->gso_segs));
	desc->payload_bytes = nupa_get(&comp->payload_bytes);
	desc->hash = nupa_get(&comp->hash);
}

static bool nupa_rx_one(struct nupa_queue *q)
{
	struct nupa_rxq *rx = &q->rx;
	struct nupa_rx_desc desc;
	struct sk_buff *skb;
	bool fatal = false;
	const u8 *header;

	nupa_rx_copy_desc(rx, &desc);
	if (!nupa_rx_check(q, &desc, &fatal))
		return !fatal;
	header = rx->header_slots + (size_t)(rx->comp_cons & (rx->entries - 1)) * NUPA_RX_SLOT_BYTES;
	skb = nupa_rx_skb(q, &desc, header);
	if (!skb)
		return true;
	if (desc.flags & NUPA_RX_F_QP)
		netif_receive_skb(skb);		/* software GRO would lose message boundaries */
	else
		napi_gro_receive(&q->napi, skb);
	return true;
}

static u32 nupa_rx_waiting(struct nupa_queue *q)
{
	struct nupa_rxq *rx = &q->rx;
	u32 waiting = nupa_get_acquire(&rx->ctl->comp_prod) - rx->comp_cons;

	if (waiting <= rx->entries)
		return waiting;
	nupa_fail(q->nupa, "receive producer index out of range");
	return 0;
}

int nupa_rx_poll(struct nupa_queue *q, int budget)
{
	struct nupa_rxq *rx = &q->rx;
	u32 waiting = 0;
	int done = 0;

	nupa_rx_count(q, NUPA_RXS_polls, 1);
	while (done < budget && !nupa_failed(q->nupa)) {
		if (!waiting)
			waiting = nupa_rx_waiting(q);
		if (!waiting)
			break;
		if (!nupa_rx_one(q)) {
			nupa_fail(q->nupa, "receive completion does not match the buffers");
			break;
		}
		waiting--;
		done++;
		rx->comp_cons++;
		if (done % NUPA_RX_PUBLISH_PACKETS == 0)
			nupa_put_release(&rx->ctl->comp_cons, rx->comp_cons);
		nupa_rx_refill(q);
	}
	nupa_rx_refill(q);
	nupa_put_release(&rx->ctl->comp_cons, rx->comp_cons);
	return done;
}

bool nupa_rx_arm(struct nupa_queue *q)
{
	struct nupa_rxq *rx = &q->rx;

	if (nupa_failed(q->nupa))
		return false;
	nupa_put(&rx->ctl->irq_event, rx->comp_cons);
	virt_mb();		/* the event before comp_prod */
	return nupa_get(&rx->ctl->comp_prod) != rx->comp_cons;
}

/* After napi_disable(), which keeps NAPI from starting the timer again. */
void nupa_rx_quiesce(struct nupa_queue *q)
{
	timer_delete_sync(&q->rx.retry);
}

/* ---- memory ---- */

static struct page_pool *nupa_rx_pool(struct nupa_queue *q, u32 entries, u32 buf_bytes)
{
	struct page_pool_params params = {
		.flags = PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV,
		.order = get_order(buf_bytes),
		.pool_size = entries,
		.nid = dev_to_node(nupa_device(q->nupa)),
		.dev = nupa_device(q->nupa),
		.napi = &q->napi,
		.netdev = q->nupa->netdev,
		.queue_idx = q->index,
		.dma_dir = DMA_FROM_DEVICE,
		.max_len = buf_bytes,
	};

	return page_pool_create(&params);
}

static void *nupa_rx_coherent(struct nupa_queue *q, size_t bytes, dma_addr_t *dma)
{
	return dma_alloc_coherent(nupa_device(q->nupa), bytes, dma, GFP_KERNEL | __GFP_NOWARN);
}

static void nupa_rx_coherent_free(struct nupa_queue *q, size_t bytes, void *at, dma_addr_t dma)
{
	if (at)
		dma_free_coherent(nupa_device(q->nupa), bytes, at, dma);
}

static void nupa_rx_free_rings(struct nupa_queue *q, u32 entries)
{
	struct nupa_rxq *rx = &q->rx;

	nupa_rx_coherent_free(q, entries * sizeof(*rx->fill), rx->fill, rx->fill_dma);
	nupa_rx_coherent_free(q, entries * sizeof(*rx->comp), rx->comp, rx->comp_dma);
	nupa_rx_coherent_free(q, (size_t)entries * NUPA_RX_SLOT_BYTES, rx->header_slots,
			      rx->header_dma);
	rx->fill = NULL;
	rx->comp = NULL;
	rx->header_slots = NULL;
}

static int nupa_rx_alloc_rings(struct nupa_queue *q, u32 entries)
{
	struct nupa_rxq *rx = &q->rx;

	rx->fill = nupa_rx_coherent(q, entries * sizeof(*rx->fill), &rx->fill_dma);
	rx->comp = nupa_rx_coherent(q, entries * sizeof(*rx->comp), &rx->comp_dma);
	rx->header_slots = nupa_rx_coherent(q, (size_t)entries * NUPA_RX_SLOT_BYTES,
					    &rx->header_dma);
	if (rx->fill && rx->comp && rx->header_slots)
		return 0;
	nupa_rx_free_rings(q, entries);
	return -ENOMEM;
}

/*
 * @quiet: the switch let go of the memory.  If it did not (it is hung, not
 * gone), everything it may still write is given up rather than reused.
 */
void nupa_rx_free(struct nupa_queue *q, bool quiet)
{
	struct nupa_rxq *rx = &q->rx;

	if (!rx->entries)
		return;
	if (quiet) {
		nupa_rx_put_bufs(rx, nupa_rx_filled(rx), false);
		page_pool_destroy(rx->pool);
		nupa_rx_free_rings(q, rx->entries);
	} else {
		page_pool_disable_direct_recycling(rx->pool);
	}
	kvfree(rx->pages);
	rx->entries = 0;
}

int nupa_rx_alloc(struct nupa_queue *q, u32 entries, u32 buf_bytes)
{
	struct nupa_rxq *rx = &q->rx;
	int err;

	rx->pages = kvcalloc(entries, sizeof(*rx->pages), GFP_KERNEL);
	if (!rx->pages)
		return -ENOMEM;
	err = nupa_rx_alloc_rings(q, entries);
	if (err)
		goto free_pages;
	rx->pool = nupa_rx_pool(q, entries, buf_bytes);
	if (IS_ERR(rx->pool)) {
		err = PTR_ERR(rx->pool);
		goto free_rings;
	}
	rx->entries = entries;
	rx->buf_bytes = buf_bytes;
	rx->fill_prod = 0;
	rx->fill_cons = 0;
	rx->comp_cons = 0;
	timer_setup(&rx->retry, nupa_rx_retry, 0);
	/* now, while NAPI does not run: the pool's cache has no lock */
	while (nupa_rx_filled(rx) < entries) {
		if (!nupa_rx_fill_one(rx, GFP_KERNEL)) {
			nupa_rx_free(q, true);
			return -ENOMEM;
		}
	}
	return 0;
free_rings:
	nupa_rx_free_rings(q, entries);
free_pages:
	kvfree(rx->pages);
	return err;
}

int nupa_rx_create(struct nupa_queue *q)
{
	struct nupa_rxq *rx = &q->rx;
	struct nupa_admin_cmd cmd = {
		.op = cpu_to_le16(NUPA_ADMIN_RXQ_CREATE),
		.id = cpu_to_le32(q->index),
		.queue.ring_addr = cpu_to_le64(rx->fill_dma),
		.queue.comp_addr = cpu_to_le64(rx->comp_dma),
		.queue.slot_addr = cpu_to_le64(rx->header_dma),
		.queue.entries = cpu_to_le32(rx->entries),
		.queue.comp_entries = cpu_to_le32(rx->entries),
		.queue.buf_bytes = cpu_to_le32(rx->buf_bytes),
		.queue.flags = cpu_to_le32(q->nupa->strict_split ? NUPA_RXQ_F_STRICT_SPLIT : 0),
	};

	nupa_put_release(&rx->ctl->fill_prod, rx->fill_prod);
	nupa_put(&rx->ctl->comp_cons, 0);
	nupa_put(&rx->ctl->irq_event, 0);
	return nupa_admin_submit(q->nupa, &cmd, NULL);
}
