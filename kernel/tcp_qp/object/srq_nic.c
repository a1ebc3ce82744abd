// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues that a NIC takes from, too (struct tqp_offload_srq).  Who takes
 * owns the ring for that time, which for the NIC is as long as it takes to place one
 * packet and to complete it.
 */
#include "object/tqp.h"

bool tqp_srq_own(struct tqp_srq *srq)
{
	lockdep_assert_held(&srq->lock);
	if (!srq->nic.shared)
		return true;
	if (!srq->nic.hangs)	/* nobody waits for it a second time */
		srq->nic.hangs = !tqp_nic_own(&srq->nic.ctl->owner);
	if (srq->nic.hangs)
		return false;
	srq->ring->index = le32_to_cpu(srq->nic.ctl->index) & srq->ring->mask;
	return true;
}

void tqp_srq_disown(struct tqp_srq *srq)
{
	lockdep_assert_held(&srq->lock);
	if (!srq->nic.shared)
		return;
	WRITE_ONCE(srq->nic.ctl->index, cpu_to_le32(srq->ring->index));
	tqp_nic_disown(&srq->nic.ctl->owner);
}

u32 tqp_srq_index(const struct tqp_srq *srq)
{
	/* so is the index that it had before */
	return smp_load_acquire(&srq->nic.shared) ? le32_to_cpu(READ_ONCE(srq->nic.ctl->index)) :
					    READ_ONCE(srq->ring->index);
}

/* The NIC takes once a QP of it is told to, which is after this. */
static int tqp_srq_tell(struct tqp_srq *srq, struct tqp_device *dev)
{
	struct tqp_offload_srq osrq = {
		.id = srq->ib.res.id,
		.mask = srq->ring->mask,
		.sge_max = srq->max_sge,
		.log2_bytes = srq->ring->log2_elem,
	};
	void *ctl = tqp_nic_ring_map(&srq->nic.ring, srq->ring, dev);
	int err;

	if (IS_ERR(ctl))
		return PTR_ERR(ctl);
	osrq.pages = srq->nic.ring.pages;
	osrq.nr_pages = srq->nic.ring.nr_pages;
	osrq.ctl = srq->nic.ring.ctl_dma;
	err = dev->offload->ops->srq_create(dev->offload, &osrq);
	if (err)
		tqp_nic_ring_unmap(&srq->nic.ring, ctl, dev);
	else
		srq->nic.ctl = ctl;
	return err;
}

bool tqp_srq_share(struct tqp_srq *srq)
{
	struct tqp_device *dev = to_tqp_device(srq->ib.device);
	struct tqp_srq_nic *nic = &srq->nic;
	bool shared;

	if (!dev->offload->ops->srq_create || !dev->offload->ops->srq_destroy)
		return false;
	mutex_lock(&nic->lock);
	if (!nic->ctl && !nic->refused)
		nic->refused = tqp_srq_tell(srq, dev);
	spin_lock_irq(&srq->lock);
	if (!nic->refused && !nic->shared) {
		nic->ctl->index = cpu_to_le32(srq->ring->index);
		/* after it: who reads the index has no lock */
		smp_store_release(&nic->shared, true);
	}
	shared = nic->shared;
	spin_unlock_irq(&srq->lock);
	mutex_unlock(&nic->lock);
	return shared;
}

void tqp_srq_forget(struct tqp_srq *srq)
{
	struct tqp_device *dev = to_tqp_device(srq->ib.device);
	struct tqp_srq_nic *nic = &srq->nic;

	if (!nic->ctl)
		return;
	if (!tqp_end_is_forgotten(dev, dev->offload->ops->srq_destroy(dev->offload, srq->ib.res.id))) {
		tqp_ring_give_up(srq->ring);
		kvfree(nic->ring.pages);
		return;
	}
	tqp_nic_ring_unmap(&nic->ring, nic->ctl, dev);
}
