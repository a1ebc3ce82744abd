// SPDX-License-Identifier: GPL-2.0
/*
 * What the switch reads of a QP: how far it is, and which READs wait; and what it
 * writes while it is its turn.  Slots of pages that many QPs share; the switch is
 * told of one QP's bytes alone.
 */
#include <linux/dmapool.h>
#include "offload/offload.h"

enum {
	TQP_SHADOW_ALIGN = 64,	/* no two QPs in one cache line */
	TQP_RING_CTL_ALIGN = 16,
};

int tqp_shadow_init(struct tqp_device *dev)
{
	struct device *dma_dev;

	if (!dev->offload)
		return 0;
	dma_dev = dev->offload->dma_dev;
	dev->shadows = dma_pool_create("tcp_qp shadows", dma_dev, sizeof(struct tqp_offload_shadow),
				       TQP_SHADOW_ALIGN, 0);
	dev->shadow_reads = dma_pool_create("tcp_qp reads", dma_dev, sizeof(struct tqp_offload_reads),
					    TQP_SHADOW_ALIGN, 0);
	static_assert(sizeof(struct tqp_offload_cq_ctl) == sizeof(struct tqp_offload_srq_ctl));
	dev->ring_ctls = dma_pool_create("tcp_qp rings", dma_dev, sizeof(struct tqp_offload_cq_ctl),
				       TQP_RING_CTL_ALIGN, 0);
	return dev->shadows && dev->shadow_reads && dev->ring_ctls ? 0 : -ENOMEM;
}

void tqp_shadow_exit(struct tqp_device *dev)
{
	dma_pool_destroy(dev->ring_ctls);
	dma_pool_destroy(dev->shadow_reads);
	dma_pool_destroy(dev->shadows);
}

int tqp_shadow_alloc(struct tqp_conn *conn)
{
	struct tqp_offload_shadow *shadow;

	shadow = dma_pool_zalloc(conn->dev->shadows, GFP_KERNEL, &conn->offload.shadow_dma);
	if (!shadow)
		return -ENOMEM;
	lock_sock(conn->sk);
	conn->offload.shadow = shadow;
	release_sock(conn->sk);
	return 0;
}

void tqp_shadow_add_reads(struct tqp_conn *conn)
{
	sock_owned_by_me(conn->sk);
	if (!conn->offload.shadow || conn->offload.reads)
		return;
	conn->offload.reads = dma_pool_zalloc(conn->dev->shadow_reads, GFP_KERNEL | __GFP_NOWARN,
					     &conn->offload.reads_dma);
	if (conn->offload.reads)	/* after its zeroes: the switch loads it with acquire */
		smp_store_release(&conn->offload.shadow->reads_addr, cpu_to_le64(conn->offload.reads_dma));
}

void tqp_shadow_end(struct tqp_conn *conn)
{
	struct tqp_offload_shadow *shadow = conn->offload.shadow;
	struct tqp_offload_reads *reads = conn->offload.reads;

	sock_owned_by_me(conn->sk);
	if (!shadow)
		return;
	tqp_turn_end(conn);
	tqp_sends_end(conn);
	conn->offload.shadow = NULL;
	conn->offload.reads = NULL;
	if (conn->offload.lost)
		return;
	if (reads)
		dma_pool_free(conn->dev->shadow_reads, reads, conn->offload.reads_dma);
	dma_pool_free(conn->dev->shadows, shadow, conn->offload.shadow_dma);
}
