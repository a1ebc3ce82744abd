// SPDX-License-Identifier: GPL-2.0
/*
 * The command ring.  One command at a time: every caller may sleep, and no
 * command lies on a data path.
 */
#include <linux/dma-mapping.h>
#include "nupa.h"

enum {
	NUPA_ADMIN_RING_BYTES = NUPA_ADMIN_ENTRIES * sizeof(struct nupa_admin_cmd),
	NUPA_ADMIN_COMP_BYTES = NUPA_ADMIN_ENTRIES * sizeof(struct nupa_admin_comp),
};

static const int nupa_status_errno[NUPA_E_STATUS_COUNT] = {
	[NUPA_OK] = 0,
	[NUPA_E_OPCODE] = -EOPNOTSUPP,
	[NUPA_E_INVALID] = -EINVAL,
	[NUPA_E_EXISTS] = -EEXIST,
	[NUPA_E_NOENT] = -ENOENT,
	[NUPA_E_NOSPACE] = -ENOSPC,
	[NUPA_E_ADDRESS] = -EFAULT,
	[NUPA_E_QUOTA] = -EDQUOT,
};

int nupa_admin_alloc(struct nupa_dev *nupa)
{
	struct nupa_admin *admin = &nupa->admin;

	mutex_init(&admin->lock);
	init_waitqueue_head(&admin->wait);
	admin->ctl = nupa->bar2 + NUPA_BAR2_ADMIN_AT;
	admin->cmds = dma_alloc_coherent(nupa_device(nupa), NUPA_ADMIN_RING_BYTES,
					 &admin->cmds_dma, GFP_KERNEL);
	if (!admin->cmds)
		return -ENOMEM;
	admin->comps = dma_alloc_coherent(nupa_device(nupa), NUPA_ADMIN_COMP_BYTES,
					  &admin->comps_dma, GFP_KERNEL);
	if (!admin->comps)
		goto free_cmds;
	return 0;
free_cmds:
	dma_free_coherent(nupa_device(nupa), NUPA_ADMIN_RING_BYTES, admin->cmds, admin->cmds_dma);
	return -ENOMEM;
}

/*
 * A switch that did not acknowledge the last reset may still complete a
 * command: the page it would write stays allocated for good.
 */
void nupa_admin_free(struct nupa_dev *nupa)
{
	struct nupa_admin *admin = &nupa->admin;

	if (!nupa_switch_gone(nupa) &&
	    nupa_get(&nupa->regs->reset_ack) != nupa_get(&nupa->regs->control_gen))
		return;
	dma_free_coherent(nupa_device(nupa), NUPA_ADMIN_COMP_BYTES, admin->comps, admin->comps_dma);
	dma_free_coherent(nupa_device(nupa), NUPA_ADMIN_RING_BYTES, admin->cmds, admin->cmds_dma);
}

void nupa_admin_restart(struct nupa_dev *nupa)
{
	struct nupa_admin *admin = &nupa->admin;

	mutex_lock(&admin->lock);	/* who submitted before the failure has seen it, and looks no more */
	admin->prod = 0;
	nupa_put(&admin->ctl->ring.prod, 0);
	nupa_put(&admin->ctl->ring.irq_event, 0);
	WRITE_ONCE(admin->ctl->ring_addr, cpu_to_le64(admin->cmds_dma));
	WRITE_ONCE(admin->ctl->comp_addr, cpu_to_le64(admin->comps_dma));
	mutex_unlock(&admin->lock);
}

static void nupa_admin_post(struct nupa_dev *nupa, const struct nupa_admin_cmd *cmd)
{
	struct nupa_admin *admin = &nupa->admin;
	struct nupa_ring_ctl *ctl = &admin->ctl->ring;
	u32 old = admin->prod++;

	admin->cmds[old % NUPA_ADMIN_ENTRIES] = *cmd;
	nupa_put(&ctl->irq_event, old);
	nupa_put_release(&ctl->prod, admin->prod);
	virt_mb();		/* prod before db_event: else both sides could sleep */
	if (nupa_need_event(nupa_get(&ctl->db_event), admin->prod, old))
		nupa_doorbell(nupa, 0);
}

static bool nupa_admin_done(struct nupa_dev *nupa)
{
	return nupa_get_acquire(&nupa->admin.ctl->ring.cons) == nupa->admin.prod;
}

static int nupa_admin_result(struct nupa_dev *nupa, const struct nupa_admin_cmd *cmd,
			     struct nupa_admin_comp *comp)
{
	struct nupa_admin_comp copy = nupa->admin.comps[(nupa->admin.prod - 1) % NUPA_ADMIN_ENTRIES];
	u16 status = le16_to_cpu(copy.status);

	if (copy.op != cmd->op || copy.id != cmd->id || status >= NUPA_E_STATUS_COUNT) {
		nupa_fail(nupa, "a completion does not match its command");
		return -ETIMEDOUT;
	}
	if (comp)
		*comp = copy;
	return nupa_status_errno[status];
}

int nupa_admin_submit(struct nupa_dev *nupa, const struct nupa_admin_cmd *cmd,
		      struct nupa_admin_comp *comp)
{
	struct nupa_admin *admin = &nupa->admin;
	int err = -EIO;
	long left;

	mutex_lock(&admin->lock);
	if (nupa_failed(nupa))
		goto unlock;
	nupa_admin_post(nupa, cmd);
	err = -ETIMEDOUT;
	left = wait_event_timeout(admin->wait, nupa_admin_done(nupa) || nupa_failed(nupa),
				  msecs_to_jiffies(NUPA_ADMIN_TIMEOUT_MS));
	if (nupa_admin_done(nupa))
		err = nupa_admin_result(nupa, cmd, comp);
	else if (!left)
		nupa_fail(nupa, "the switch does not answer commands");
unlock:
	mutex_unlock(&admin->lock);
	return err;
}

int nupa_admin_simple(struct nupa_dev *nupa, enum nupa_admin_op op, u32 id)
{
	struct nupa_admin_cmd cmd = { .op = cpu_to_le16(op), .id = cpu_to_le32(id) };

	return nupa_admin_submit(nupa, &cmd, NULL);
}
