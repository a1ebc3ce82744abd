// SPDX-License-Identifier: GPL-2.0
/* What a receive queue is made of: rings, header slots, buffers. */
#include <linux/dma-mapping.h>
#include "nupa.h"

static void *nupa_rx_coherent(struct nupa_dev *nupa, size_t bytes, dma_addr_t *dma)
{
	return dma_alloc_coherent(nupa_device(nupa), bytes, dma, GFP_KERNEL | __GFP_NOWARN);
}

static void nupa_rx_coherent_free(struct nupa_dev *nupa, size_t bytes, void *at, dma_addr_t dma)
{
	if (at)
		dma_free_coherent(nupa_device(nupa), bytes, at, dma);
}

static void nupa_rx_free_rings(struct nupa_dev *nupa, struct nupa_rxq *rx, u32 entries)
{
	nupa_rx_coherent_free(nupa, entries * sizeof(*rx->comp), rx->comp, rx->comp_dma);
	nupa_rx_coherent_free(nupa, (size_t)entries * NUPA_RX_SLOT_BYTES, rx->header_slots,
			      rx->header_dma);
	rx->comp = NULL;
	rx->header_slots = NULL;
}

static int nupa_rx_alloc_rings(struct nupa_dev *nupa, struct nupa_rxq *rx, u32 entries)
{
	rx->comp = nupa_rx_coherent(nupa, entries * sizeof(*rx->comp), &rx->comp_dma);
	rx->header_slots = nupa_rx_coherent(nupa, (size_t)entries * NUPA_RX_SLOT_BYTES,
					    &rx->header_dma);
	if (rx->comp && rx->header_slots)
		return 0;
	nupa_rx_free_rings(nupa, rx, entries);
	return -ENOMEM;
}

void nupa_rx_free(struct nupa_dev *nupa, struct nupa_rxq *rx, bool quiet)
{
	nupa_fill_free(nupa, &rx->longs, quiet);
	nupa_fill_free(nupa, &rx->fill, quiet);
	if (rx->entries && quiet)
		nupa_rx_free_rings(nupa, rx, rx->entries);
	rx->entries = 0;
}

/*
 * Long buffers are as many as can be had without a search; a port works without
 * any.  Device memory comes in pages, and a queue that has it has nothing else.
 */
static int nupa_rx_alloc_long(struct nupa_queue *q, struct nupa_rxq *rx)
{
	int err;

	if (!q->nupa->rx_long_entries || rx->fill.device)
		return 0;
	err = nupa_fill_alloc(q, &rx->longs, q->nupa->rx_long_entries, NUPA_RX_LONG_BUF_BYTES,
			      false);
	if (!err)
		nupa_fill_ring(&rx->longs, GFP_KERNEL | __GFP_NORETRY);
	return err;
}

/* The buffers come now, while no NAPI uses them: a pool's cache has no lock. */
static int nupa_rx_alloc_fill(struct nupa_queue *q, struct nupa_rxq *rx)
{
	int err;

	err = nupa_fill_alloc(q, &rx->fill, q->nupa->rx_entries, q->nupa->rx_buf_bytes, rx->strict);
	if (err || nupa_fill_ring(&rx->fill, GFP_KERNEL))
		return err;
	return rx->fill.device ? 0 : -ENOMEM;	/* device memory is as much as its owner has given */
}

int nupa_rx_alloc(struct nupa_queue *q, struct nupa_rxq *rx)
{
	u32 entries = q->nupa->rx_entries;
	int err;

	err = nupa_rx_alloc_rings(q->nupa, rx, entries);
	if (err)
		return err;
	rx->entries = entries;
	rx->comp_cons = 0;
	rx->later_cons = -(2 * NUPA_RX_LATER_MAX + 1);	/* nothing has waited lately: nupa_rx_later() */
	rx->strict = q->nupa->strict_split;
	rx->ran = false;
	return nupa_rx_alloc_fill(q, rx) ?: nupa_rx_alloc_long(q, rx);
}

int nupa_rx_create(struct nupa_queue *q)
{
	struct nupa_rxq *rx = &q->rx;
	struct nupa_admin_cmd cmd = {
		.op = cpu_to_le16(NUPA_ADMIN_RXQ_CREATE),
		.id = cpu_to_le32(q->index),
		.queue.ring_addr = cpu_to_le64(rx->fill.dma),
		.queue.comp_addr = cpu_to_le64(rx->comp_dma),
		.queue.slot_addr = cpu_to_le64(rx->header_dma),
		.queue.entries = cpu_to_le32(rx->fill.entries),
		.queue.comp_entries = cpu_to_le32(rx->entries),
		.queue.buf_bytes = cpu_to_le32(rx->fill.buf_bytes),
		.queue.flags = cpu_to_le32(rx->strict ? NUPA_RXQ_F_STRICT_SPLIT : 0),
	};
	int err;

	if (rx->longs.entries) {
		cmd.queue.long_ring_addr = cpu_to_le64(rx->longs.dma);
		cmd.queue.long_entries = cpu_to_le32(rx->longs.entries);
		cmd.queue.long_buf_bytes = cpu_to_le32(rx->longs.buf_bytes);
		nupa_fill_show(&rx->longs, &rx->ctl->long_prod);
		if (nupa_fill_waiting(&rx->longs) < rx->longs.entries)
			nupa_rx_count(q, NUPA_RXS_long_alloc_failures, 1);
	}
	nupa_fill_show(&rx->fill, &rx->ctl->fill_prod);
	nupa_put(&rx->ctl->comp_cons, 0);
	nupa_put(&rx->ctl->seen, 0);
	nupa_put(&rx->ctl->irq_event, 0);
	err = nupa_admin_submit(q->nupa, &cmd, NULL);
	if (!err)
		rx->ran = true;
	return err;
}
