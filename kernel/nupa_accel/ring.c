// SPDX-License-Identifier: GPL-2.0
/* Commands.  What the device answers is copied once and believed as far as it makes sense. */
#include <linux/completion.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include "accel.h"

/*
 * References: the submitter's, and the device's from submission until the last
 * of it was executed.
 */
struct nupa_batch {
	refcount_t ref;
	u32 count, left, max;
	u32 last;		/* ring index of its last command */
	int error;
	struct completion done;
	struct {
		struct nupa_accel_cmd cmd;
		struct dma_buf *dmabufs[3];
		u32 status;
		u64 result;
	} entries[] __counted_by(max);
};

struct nupa_batch *nupa_batch_alloc(u32 max, gfp_t gfp)
{
	struct nupa_batch *batch = kzalloc(struct_size(batch, entries, max), gfp);

	if (!batch)
		return NULL;
	batch->max = max;
	refcount_set(&batch->ref, 1);
	init_completion(&batch->done);
	return batch;
}

static void nupa_put_dmabufs(struct dma_buf *const dmabufs[3])
{
	for (int i = 0; i < 3; i++)
		if (dmabufs[i])
			dma_buf_put(dmabufs[i]);
}

void nupa_batch_put(struct nupa_batch *batch)
{
	if (!refcount_dec_and_test(&batch->ref))
		return;
	for (u32 i = 0; i < batch->count; i++)
		nupa_put_dmabufs(batch->entries[i].dmabufs);
	kfree(batch);
}

int nupa_batch_add(struct nupa_batch *batch, const struct nupa_accel_cmd *cmd,
		   struct dma_buf *const dmabufs[3])
{
	if (batch->count == batch->max) {
		nupa_put_dmabufs(dmabufs);
		return -E2BIG;
	}
	batch->entries[batch->count].cmd = *cmd;
	memcpy(batch->entries[batch->count].dmabufs, dmabufs, 3 * sizeof(*dmabufs));
	batch->count++;
	return 0;
}

void nupa_batch_result(const struct nupa_batch *batch, u32 i, u32 *status, u64 *result)
{
	*status = batch->entries[i].status;
	*result = batch->entries[i].result;
}

void nupa_ring_init(struct nupa_accel *accel)
{
	mutex_init(&accel->ring_lock);
	spin_lock_init(&accel->slot_lock);
	init_waitqueue_head(&accel->room);
}

void nupa_ring_start(struct nupa_accel *accel)
{
	accel->prod = 0;
	accel->taken = 0;
	WRITE_ONCE(accel->ring->prod, 0);
	WRITE_ONCE(accel->ring->irq_event, 0);
}

static bool nupa_ring_room(struct nupa_accel *accel, u32 count)
{
	return READ_ONCE(accel->gone) ||
	       NUPA_ACCEL_ENTRIES - (accel->prod - READ_ONCE(accel->taken)) >= count;
}

/*
 * Where the device is to interrupt: at the end of the oldest batch, so that nobody's
 * processor runs for a command in the middle of one; slot_lock.
 */
static void nupa_ring_ask(struct nupa_accel *accel)
{
	const struct nupa_batch *oldest = accel->slots[accel->taken % NUPA_ACCEL_ENTRIES].batch;
	u32 event = accel->taken == accel->prod ? accel->taken : oldest->last;

	WRITE_ONCE(accel->ring->irq_event, cpu_to_le32(event));
}

/* ring_lock, slot_lock; there is room. */
static void nupa_ring_push(struct nupa_accel *accel, struct nupa_batch *batch)
{
	for (u32 i = 0; i < batch->count; i++) {
		u32 at = (accel->prod + i) % NUPA_ACCEL_ENTRIES;

		accel->slots[at] = (struct nupa_accel_slot) { .batch = batch, .index = i };
		accel->cmds[at] = batch->entries[i].cmd;
		accel->cmds[at].tag = cpu_to_le32(accel->prod + i);
	}
	batch->left = batch->count;
	refcount_inc(&batch->ref);
	accel->prod += batch->count;
	batch->last = accel->prod - 1;
	nupa_ring_ask(accel);
	/* after the commands and irq_event: the device loads it with acquire */
	virt_store_release(&accel->ring->prod, cpu_to_le32(accel->prod));
}

/* ring_lock */
static int nupa_ring_post(struct nupa_accel *accel, struct nupa_batch *batch)
{
	u32 old = accel->prod;
	int err;

	/* an interrupt for each batch: those of others end in between */
	err = wait_event_killable(accel->room, nupa_ring_room(accel, batch->count));
	if (err)
		return -EINTR;
	spin_lock_irq(&accel->slot_lock);
	err = accel->gone ? -ENODEV : 0;
	if (!err)
		nupa_ring_push(accel, batch);
	spin_unlock_irq(&accel->slot_lock);
	if (err)
		return err;
	virt_mb();		/* prod before db_event: else both sides could sleep */
	if (nupa_need_event(le32_to_cpu(READ_ONCE(accel->ring->db_event)), accel->prod, old))
		nupa_accel_doorbell(accel);
	return 0;
}

/*
 * Nobody waits for it any more: what the device has not begun does nothing, so that its
 * buffers are free soon.  The device copies a command once: it does the old one, or
 * refuses a NOP that has fields.
 */
static void nupa_ring_void(struct nupa_accel *accel, const struct nupa_batch *batch)
{
	spin_lock_irq(&accel->slot_lock);
	for (u32 i = accel->taken; !accel->gone && i != accel->prod; i++)
		if (accel->slots[i % NUPA_ACCEL_ENTRIES].batch == batch)
			WRITE_ONCE(accel->cmds[i % NUPA_ACCEL_ENTRIES].op,
				   cpu_to_le16(NUPA_ACCEL_NOP));
	spin_unlock_irq(&accel->slot_lock);
}

int nupa_batch_submit(struct nupa_accel *accel, struct nupa_batch *batch)
{
	int err;

	if (mutex_lock_killable(&accel->ring_lock))
		return -EINTR;
	err = nupa_ring_post(accel, batch);
	mutex_unlock(&accel->ring_lock);
	if (err)
		return err;
	if (wait_for_completion_killable(&batch->done)) {
		nupa_ring_void(accel, batch);
		return -EINTR;
	}
	return batch->error;
}

/* slot_lock */
static void nupa_ring_done(struct nupa_accel *accel, struct nupa_accel_slot *slot, u32 status,
			   u64 result, int error)
{
	struct nupa_batch *batch = slot->batch;

	slot->batch = NULL;
	batch->entries[slot->index].status = status;
	batch->entries[slot->index].result = result;
	batch->error = batch->error ?: error;
	if (--batch->left)
		return;
	complete_all(&batch->done);
	nupa_batch_put(batch);
}

/* slot_lock */
static void nupa_ring_take(struct nupa_accel *accel, u32 cons)
{
	while (accel->taken != cons) {
		u32 at = accel->taken % NUPA_ACCEL_ENTRIES;
		struct nupa_accel_comp comp = accel->comps[at];
		bool right = le32_to_cpu(comp.tag) == accel->taken;

		nupa_ring_done(accel, &accel->slots[at], le32_to_cpu(comp.status),
			       le64_to_cpu(comp.result), right ? 0 : -EIO);
		atomic64_inc(&accel->commands);
		WRITE_ONCE(accel->taken, accel->taken + 1);
	}
}

void nupa_ring_poll(struct nupa_accel *accel)
{
	unsigned long flags;
	u32 cons;

	spin_lock_irqsave(&accel->slot_lock, flags);
	do {
		/* the device stores it with release after the completions */
		cons = le32_to_cpu(virt_load_acquire(&accel->ring->cons));
		if (accel->gone || cons - accel->taken > accel->prod - accel->taken)
			break;	/* it never said so, or it lies: its reset ends what waits */
		nupa_ring_take(accel, cons);
		nupa_ring_ask(accel);
		virt_mb();	/* the event before cons */
	} while (le32_to_cpu(READ_ONCE(accel->ring->cons)) != cons);
	spin_unlock_irqrestore(&accel->slot_lock, flags);
	wake_up_all(&accel->room);
}

void nupa_ring_end(struct nupa_accel *accel)
{
	spin_lock_irq(&accel->slot_lock);
	WRITE_ONCE(accel->gone, true);
	for (; accel->taken != accel->prod; accel->taken++)
		nupa_ring_done(accel, &accel->slots[accel->taken % NUPA_ACCEL_ENTRIES], 0, 0,
			       -ENODEV);
	spin_unlock_irq(&accel->slot_lock);
	wake_up_all(&accel->room);
}
