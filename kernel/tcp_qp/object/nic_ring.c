// SPDX-License-Identifier: GPL-2.0
/*
 * Rings of applications that a NIC moves, too: its pages, a control block that the
 * application cannot write, and whose the ring is for the moment.  The NIC never waits
 * for us, and has a ring for as long as one packet takes.
 */
#include <linux/dmapool.h>
#include <linux/sched/clock.h>
#include "object/tqp.h"

/* As long as an admin command may take: then the NIC hangs, and its QPs end. */
#define TQP_NIC_HANG_NS (5ULL * NSEC_PER_SEC)

bool tqp_nic_own(__le32 *owner)
{
	const __le32 none = cpu_to_le32(TQP_OFFLOAD_CQ_OWNER_NONE);
	u64 began = 0;

	while (tqp_offload_cmpxchg(owner, none, cpu_to_le32(TQP_OFFLOAD_CQ_OWNER_HOST)) != none) {
		if (!began)
			began = local_clock();
		else if (local_clock() - began > TQP_NIC_HANG_NS)
			return false;
		cpu_relax();
	}
	return true;
}

void tqp_nic_disown(__le32 *owner)
{
	/* after all that we wrote: the NIC takes it with acquire */
	smp_store_release(owner, cpu_to_le32(TQP_OFFLOAD_CQ_OWNER_NONE));
}

void *tqp_nic_ring_map(struct tqp_nic_ring *nic, const struct tqp_ring *ring,
		       struct tqp_device *dev)
{
	void *ctl;

	nic->pages = tqp_ring_map(ring, dev->offload->dma_dev, &nic->nr_pages);
	if (IS_ERR(nic->pages))
		return nic->pages;
	ctl = dma_pool_zalloc(dev->ring_ctls, GFP_KERNEL, &nic->ctl_dma);
	if (ctl)
		return ctl;
	tqp_ring_unmap(dev->offload->dma_dev, nic->pages, nic->nr_pages);
	return ERR_PTR(-ENOMEM);
}

void tqp_nic_ring_unmap(struct tqp_nic_ring *nic, void *ctl, struct tqp_device *dev)
{
	dma_pool_free(dev->ring_ctls, ctl, nic->ctl_dma);
	tqp_ring_unmap(dev->offload->dma_dev, nic->pages, nic->nr_pages);
}
