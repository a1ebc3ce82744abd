// SPDX-License-Identifier: GPL-2.0
/*
 * Leases of the switch's pool: a window's memory is allocated by the device.
 *
 * Commands are submitted by a workqueue, which no signal interrupts: a process
 * that is killed while it waits for a lease leaves it to the work item, and one
 * that is killed while it holds a buffer gives it back like any other.  A request
 * is freed by the later of both, who also hands back what nobody took.
 *
 * A lease that was offered may be another host's by now, and may even have come back
 * as another buffer of ours: its end names the token, and so ends that offer alone.
 */
#include <linux/completion.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include "accel.h"

enum nupa_lease_state {
	NUPA_LEASE_WAITED_FOR,
	NUPA_LEASE_THERE,	/* the requester has the answer */
	NUPA_LEASE_LEFT,	/* the requester has gone */
};

struct nupa_lease {
	struct work_struct work;
	struct nupa_accel *accel;
	u64 bytes;
	u64 token;		/* of one that is offered; 0: a new one */
	u64 at;			/* in the window's memory */
	int err;
	atomic_t state;		/* enum nupa_lease_state */
	refcount_t ref;
	struct completion done;
};

static struct workqueue_struct *nupa_lease_wq;

int nupa_lease_init(void)
{
	nupa_lease_wq = alloc_workqueue("nupa_lease", WQ_UNBOUND, 0);
	return nupa_lease_wq ? 0 : -ENOMEM;
}

void nupa_lease_exit(void)
{
	destroy_workqueue(nupa_lease_wq);
}

static int nupa_lease_errno(u32 status)
{
	switch (status) {
	case NUPA_ACCEL_OK:
		return 0;
	case NUPA_POOL_E_NOSPACE:
		return -ENOSPC;
	case NUPA_POOL_E_SHARE:
		return -EDQUOT;
	case NUPA_POOL_E_NOENT:
		return -ENOENT;
	case NUPA_POOL_E_BUSY:
		return -EBUSY;
	default:
		return -EIO;
	}
}

/* A range that is not given back is lost until the window's reset: nothing here fails for memory. */
static int nupa_lease_command(struct nupa_accel *accel, const struct nupa_accel_cmd *cmd,
			      u64 *result)
{
	struct nupa_batch *batch = nupa_batch_alloc(1, GFP_KERNEL | __GFP_NOFAIL);
	struct dma_buf *none[3] = {};
	u32 status;
	int err;

	err = nupa_batch_add(batch, cmd, none) ?: nupa_batch_submit(accel, batch);
	if (!err) {
		nupa_batch_result(batch, 0, &status, result);
		err = nupa_lease_errno(status);
	}
	nupa_batch_put(batch);
	return err;
}

static void nupa_lease_release(struct nupa_accel *accel, u64 at, u64 token)
{
	struct nupa_accel_cmd cmd = {
		.op = cpu_to_le16(NUPA_POOL_RELEASE),
		.to = cpu_to_le64(at),
		.other = cpu_to_le64(token),
	};
	u64 unused;
	int err = nupa_lease_command(accel, &cmd, &unused);

	/* a window that is gone has given all back; an offered lease may be taken */
	if (err && err != -ENODEV && !(token && err == -ENOENT))
		pr_warn("%s: the pool does not take %#llx back (%d)\n", accel->name, at, err);
}

static void nupa_lease_put(struct nupa_lease *lease)
{
	if (!refcount_dec_and_test(&lease->ref))
		return;
	nupa_accel_put(lease->accel);
	kfree(lease);
}

/* What the device says is believed as far as it makes sense. */
static int nupa_lease_check(const struct nupa_lease *lease)
{
	u64 window = lease->accel->memory_bytes;

	return lease->at % PAGE_SIZE || lease->at >= window || lease->bytes > window - lease->at ?
		-EIO : 0;
}

/* The device has another lease there, and a static importer of an earlier one still reaches it. */
static int nupa_lease_keep_off(const struct nupa_lease *lease)
{
	if (!nupa_range_kept(lease->accel->memory + lease->at, lease->bytes))
		return 0;
	nupa_lease_release(lease->accel, lease->at, 0);
	return -EBUSY;
}

static void nupa_lease_work(struct work_struct *work)
{
	struct nupa_lease *lease = container_of(work, struct nupa_lease, work);
	struct nupa_accel_cmd cmd = {
		.op = cpu_to_le16(lease->token ? NUPA_POOL_TAKE : NUPA_POOL_LEASE),
		.other = cpu_to_le64(lease->token),
		.bytes = cpu_to_le64(lease->bytes),
	};

	lease->err = nupa_lease_command(lease->accel, &cmd, &lease->at) ?:
		     nupa_lease_check(lease) ?: nupa_lease_keep_off(lease);
	if (atomic_cmpxchg(&lease->state, NUPA_LEASE_WAITED_FOR, NUPA_LEASE_THERE) ==
	    NUPA_LEASE_WAITED_FOR)
		complete(&lease->done);
	else if (!lease->err)
		nupa_lease_release(lease->accel, lease->at, 0);
	nupa_lease_put(lease);
}

int nupa_lease_take(struct nupa_accel *accel, u64 bytes, u64 token, phys_addr_t *at)
{
	struct nupa_lease *lease = kzalloc(sizeof(*lease), GFP_KERNEL_ACCOUNT);
	int err;

	if (!lease)
		return -ENOMEM;
	nupa_accel_get(accel);
	lease->accel = accel;
	lease->bytes = bytes;
	lease->token = token;
	refcount_set(&lease->ref, 2);
	init_completion(&lease->done);
	INIT_WORK(&lease->work, nupa_lease_work);
	queue_work(nupa_lease_wq, &lease->work);
	if (wait_for_completion_killable(&lease->done) &&
	    atomic_cmpxchg(&lease->state, NUPA_LEASE_WAITED_FOR, NUPA_LEASE_LEFT) ==
		    NUPA_LEASE_WAITED_FOR) {
		nupa_lease_put(lease);
		return -EINTR;
	}
	err = lease->err;
	*at = accel->memory + lease->at;
	nupa_lease_put(lease);
	return err;
}

int nupa_lease_offer(struct nupa_accel *accel, phys_addr_t at, u64 *token)
{
	struct nupa_accel_cmd cmd = {
		.op = cpu_to_le16(NUPA_POOL_OFFER),
		.to = cpu_to_le64(at - accel->memory),
	};
	int err = nupa_lease_command(accel, &cmd, token);

	return err == -ENOENT || (!err && !*token) ? -EIO : err;
}

static void nupa_lease_give_work(struct work_struct *work)
{
	struct nupa_buffer *buffer = container_of(work, struct nupa_buffer, give_work);

	nupa_lease_release(buffer->accel, buffer->at - buffer->accel->memory, buffer->token);
	nupa_buffer_gone(buffer);
}

void nupa_lease_give(struct nupa_buffer *buffer)
{
	INIT_WORK(&buffer->give_work, nupa_lease_give_work);
	queue_work(nupa_lease_wq, &buffer->give_work);
}
