// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues that a NIC writes to, too (struct tqp_offload_cq).  Who writes
 * owns the ring for that time.  The NIC never waits for us, and has it for as long
 * as it takes to write the completions of one packet.
 */
#include "object/tqp.h"

bool tqp_cq_take(struct tqp_cq *cq)
{
	lockdep_assert_held(&cq->lock);
	if (!cq->nic.shared)
		return true;
	if (!cq->nic.hangs)	/* nobody waits for it a second time */
		cq->nic.hangs = !tqp_nic_own(&cq->nic.ctl->owner);
	if (cq->nic.hangs)
		return false;
	cq->ring->index = le32_to_cpu(cq->nic.ctl->prod) & cq->ring->mask;
	return true;
}

/* It runs freely: whoever armed the CQ sees that something came even if that was a whole ring. */
static u32 tqp_cq_prod(const struct tqp_cq *cq)
{
	u32 before = le32_to_cpu(READ_ONCE(cq->nic.ctl->prod));

	return before + ((cq->ring->index - before) & cq->ring->mask);
}

void tqp_cq_give(struct tqp_cq *cq)
{
	struct tqp_offload_cq_ctl *ctl = cq->nic.ctl;

	lockdep_assert_held(&cq->lock);
	if (!cq->nic.shared)
		return;
	WRITE_ONCE(ctl->prod, cpu_to_le32(tqp_cq_prod(cq)));
	tqp_nic_disown(&ctl->owner);
}

void tqp_cq_keep(struct tqp_cq *cq)
{
	lockdep_assert_held(&cq->lock);
	cq->nic.shared = false;
}

void tqp_cq_waits(struct tqp_cq *cq)
{
	lockdep_assert_held(&cq->lock);
	if (!cq->nic.shared)
		return;
	WRITE_ONCE(cq->nic.ctl->waiting, cpu_to_le32(1));
	virt_mb();	/* the NIC writes a completion, and then looks at it */
}

/* It is armed, for what comes from now on. */
void tqp_cq_mark(struct tqp_cq *cq)
{
	lockdep_assert_held(&cq->lock);
	if (cq->nic.shared)
		cq->nic.armed_at = le32_to_cpu(READ_ONCE(cq->nic.ctl->prod));
}

/* Has something come since then? */
bool tqp_cq_came_since(const struct tqp_cq *cq)
{
	lockdep_assert_held(&cq->lock);
	return !cq->nic.shared || le32_to_cpu(READ_ONCE(cq->nic.ctl->prod)) != cq->nic.armed_at;
}

/* Who is woken says so again before it sleeps. */
void tqp_cq_told(struct tqp_cq *cq, bool woken)
{
	bool waits = cq->notify;

	lockdep_assert_held(&cq->lock);
	/* who comes to the queue after this look says so itself, under the lock: tqp_cq_waits() */
	if (!woken && cq->fd && waitqueue_active(&cq->fd->wait))
		waits = true;
	if (cq->nic.shared)
		WRITE_ONCE(cq->nic.ctl->waiting, cpu_to_le32(waits));
}

static void tqp_cq_nic_came(void *arg)
{
	tqp_cq_came(arg, false);	/* whether an event was asked for is told with the packet */
}

/* The NIC writes once a QP of it is told to, which is after this. */
static int tqp_cq_tell(struct tqp_cq *cq, struct tqp_device *dev)
{
	struct tqp_offload_cq ocq = {
		.id = cq->ib.res.id,
		.mask = cq->ring->mask,
		.came = tqp_cq_nic_came,
		.arg = cq,
	};
	void *ctl = tqp_nic_ring_map(&cq->nic.ring, cq->ring, dev);
	int err;

	if (IS_ERR(ctl))
		return PTR_ERR(ctl);
	ocq.pages = cq->nic.ring.pages;
	ocq.nr_pages = cq->nic.ring.nr_pages;
	ocq.ctl = cq->nic.ring.ctl_dma;
	err = dev->offload->ops->cq_create(dev->offload, &ocq);
	if (err)
		tqp_nic_ring_unmap(&cq->nic.ring, ctl, dev);
	else
		cq->nic.ctl = ctl;
	return err;
}

bool tqp_cq_share(struct tqp_cq *cq)
{
	struct tqp_device *dev = to_tqp_device(cq->ib.device);
	bool shared;

	if (!dev->offload->ops->cq_create || !dev->offload->ops->cq_destroy)
		return false;
	mutex_lock(&cq->resizing);
	if (!cq->nic.ctl && !cq->nic.refused)
		cq->nic.refused = tqp_cq_tell(cq, dev);
	spin_lock_irq(&cq->lock);
	shared = !cq->nic.refused && !cq->overflown;
	if (shared && !cq->nic.shared) {
		cq->nic.ctl->prod = cpu_to_le32(cq->ring->index);
		cq->nic.armed_at = cq->ring->index;
		WRITE_ONCE(cq->nic.ctl->waiting, cpu_to_le32(1));
		cq->nic.shared = true;
	}
	spin_unlock_irq(&cq->lock);
	mutex_unlock(&cq->resizing);
	return shared;
}

/* Owned for good, it is ours alone. */
void tqp_cq_unshare(struct tqp_cq *cq)
{
	lockdep_assert_held(&cq->resizing);
	cq->nic.refused = true;
	spin_lock_irq(&cq->lock);
	if (!tqp_cq_take(cq)) {
		cq->overflown = true;
		tqp_ring_give_up(cq->ring);
	}
	cq->nic.shared = false;
	spin_unlock_irq(&cq->lock);
}

void tqp_cq_forget(struct tqp_cq *cq)
{
	struct tqp_device *dev = to_tqp_device(cq->ib.device);

	if (!cq->nic.ctl)
		return;
	if (!tqp_end_is_forgotten(dev, dev->offload->ops->cq_destroy(dev->offload, cq->ib.res.id))) {
		if (cq->nic.shared)
			tqp_ring_give_up(cq->ring);
		kvfree(cq->nic.ring.pages);
		return;
	}
	tqp_nic_ring_unmap(&cq->nic.ring, cq->nic.ctl, dev);
}
