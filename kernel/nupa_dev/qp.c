// SPDX-License-Identifier: GPL-2.0
/* Queue pair offload: the auxiliary device that tcp_qp binds to. */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>
#include <tcp_qp/nupa_post_hw.h>
#include <tqp_offload.h>
#include "nupa.h"

struct nupa_qp_dev {
	struct tqp_offload_device odev;
	struct nupa_dev *nupa;
};

enum {
	NUPA_OFFLOAD_TX_FLAGS = TQP_OFFLOAD_QP_TX_V0 | TQP_OFFLOAD_QP_ICRC,
	NUPA_OFFLOAD_FLAGS = NUPA_OFFLOAD_TX_FLAGS | TQP_OFFLOAD_QP_NO_RQ |
			     TQP_OFFLOAD_QP_REMOTE_WRITE | TQP_OFFLOAD_QP_COMPLETE |
			     TQP_OFFLOAD_QP_SRQ | TQP_OFFLOAD_QP_SENDS,
};

static struct nupa_dev *nupa_of(struct tqp_offload_device *odev)
{
	return container_of(odev, struct nupa_qp_dev, odev)->nupa;
}

/* A table of addresses as the switch reads it: one contiguous run. */
struct nupa_table {
	__le64 *at;
	dma_addr_t dma;
	size_t bytes;
};

static int nupa_table_alloc(struct nupa_dev *nupa, struct nupa_table *table,
			    const dma_addr_t *pages, u32 nr)
{
	u32 i;

	table->bytes = (size_t)nr * sizeof(*table->at);
	table->at = dma_alloc_coherent(nupa_device(nupa), table->bytes, &table->dma,
				       GFP_KERNEL | __GFP_NOWARN);
	if (!table->at)
		return table->bytes > PAGE_SIZE << MAX_PAGE_ORDER ? -E2BIG : -ENOMEM;
	for (i = 0; i < nr; i++)
		table->at[i] = cpu_to_le64(pages[i]);
	return 0;
}

static void nupa_table_free(struct nupa_dev *nupa, struct nupa_table *table)
{
	dma_free_coherent(nupa_device(nupa), table->bytes, table->at, table->dma);
}

/* A reset that the switch acknowledged: it knows nothing of ours. */
static bool nupa_forgotten(const struct nupa_dev *nupa)
{
	if (nupa_switch_gone(nupa))
		return true;
	if (!test_bit(NUPA_S_RESET, &nupa->state))
		return false;
	smp_rmb();		/* pairs with nupa_control_set(): the reset's generation */
	return nupa_get_acquire(&nupa->regs->reset_ack) == nupa_get(&nupa->regs->control_gen);
}

/* A port that failed is reset.  False: it was not, within @ms of its failure. */
static bool nupa_reset_wait(const struct nupa_dev *nupa, unsigned int ms)
{
	while (nupa_failed(nupa) && !nupa_forgotten(nupa)) {
		if (time_after(jiffies, READ_ONCE(nupa->failed_at) + msecs_to_jiffies(ms)))
			return false;
		msleep(NUPA_FORGET_POLL_MS);
	}
	return true;
}

/*
 * An error: the switch has not what @cmd creates, and will not have it.  A command that it
 * did not answer it may carry out until the port is reset: who created something waits for
 * that.  A port that is not reset then is dead, and its switch may come to life: what it was
 * told of is there, as far as anybody knows, and who destroys it gives its memory up.
 * @table, if any, is freed.
 */
static int nupa_create(struct nupa_dev *nupa, const struct nupa_admin_cmd *cmd,
		       struct nupa_table *table)
{
	int err = nupa_admin_submit(nupa, cmd, NULL);

	if (err == -ETIMEDOUT && !nupa_reset_wait(nupa, NUPA_CREATE_MS))
		return 0;
	if (table)
		nupa_table_free(nupa, table);
	return err;
}

/* @cmd, whose field @at says where the table of @pages is: the switch copies it. */
static int nupa_create_by_table(struct nupa_dev *nupa, struct nupa_admin_cmd *cmd, __le64 *at,
				const dma_addr_t *pages, u32 nr)
{
	struct nupa_table table;
	int err = nupa_table_alloc(nupa, &table, pages, nr);

	if (err)
		return err;
	*at = cpu_to_le64(table.dma);
	return nupa_create(nupa, cmd, &table);
}

/* The shadow is the same memory to tcp_qp and to the switch. */
static_assert(sizeof(struct tqp_offload_shadow) == sizeof(struct nupa_qp_shadow));
static_assert(offsetof(struct tqp_offload_shadow, completed) ==
	      offsetof(struct nupa_qp_shadow, completed));
static_assert(offsetof(struct tqp_offload_shadow, consumed) ==
	      offsetof(struct nupa_qp_shadow, consumed));
static_assert(offsetof(struct tqp_offload_shadow, reads_addr) ==
	      offsetof(struct nupa_qp_shadow, reads_addr));
static_assert(offsetof(struct tqp_offload_shadow, turn) == offsetof(struct nupa_qp_shadow, turn));
static_assert(offsetof(struct tqp_offload_shadow, done) == offsetof(struct nupa_qp_shadow, done));
static_assert(offsetof(struct tqp_offload_shadow, writes) ==
	      offsetof(struct nupa_qp_shadow, writes));
static_assert(offsetof(struct tqp_offload_shadow, solicited) ==
	      offsetof(struct nupa_qp_shadow, solicited));
static_assert(offsetof(struct tqp_offload_shadow, last) == offsetof(struct nupa_qp_shadow, last));
static_assert(offsetof(struct tqp_offload_shadow, late) == offsetof(struct nupa_qp_shadow, late));
static_assert(offsetof(struct tqp_offload_shadow, awaits) ==
	      offsetof(struct nupa_qp_shadow, awaits));
static_assert(offsetof(struct tqp_offload_shadow, later) ==
	      offsetof(struct nupa_qp_shadow, later));
static_assert(offsetof(struct tqp_offload_shadow, sends.posted) ==
	      offsetof(struct nupa_qp_shadow, sends.posted));
static_assert(offsetof(struct tqp_offload_shadow, sends.completed) ==
	      offsetof(struct nupa_qp_shadow, sends.completed));
static_assert(offsetof(struct tqp_offload_shadow, sends.send) ==
	      offsetof(struct nupa_qp_shadow, sends.send));
static_assert(sizeof(struct tqp_offload_send) == sizeof(struct nupa_qp_send));
static_assert(offsetof(struct tqp_offload_send, end) == offsetof(struct nupa_qp_send, end));
static_assert(offsetof(struct tqp_offload_send, bytes) == offsetof(struct nupa_qp_send, bytes));
static_assert(offsetof(struct tqp_offload_send, opcode) == offsetof(struct nupa_qp_send, opcode));
static_assert((int)TQP_OFFLOAD_SENDS_MAX == (int)NUPA_SENDS_MAX);
static_assert((int)TQP_OFFLOAD_TURN_HOST == (int)NUPA_TURN_HOST);
static_assert((int)TQP_OFFLOAD_TURN_NIC == (int)NUPA_TURN_SWITCH);
static_assert((int)TQP_OFFLOAD_TURN_BUSY == (int)NUPA_TURN_BUSY);
static_assert((int)TQP_OFFLOAD_LAST_WRITE == (int)NUPA_LAST_WRITE);
static_assert(sizeof(struct tqp_offload_reads) == sizeof(struct nupa_qp_reads));
static_assert(offsetof(struct tqp_offload_read, va) == offsetof(struct nupa_qp_read, va));
static_assert(offsetof(struct tqp_offload_read, key) == offsetof(struct nupa_qp_read, key));
static_assert(offsetof(struct tqp_offload_read, length) == offsetof(struct nupa_qp_read, length));
static_assert(offsetof(struct tqp_offload_read, valid) == offsetof(struct nupa_qp_read, valid));
static_assert((int)TQP_OFFLOAD_READS_MAX == (int)NUPA_READS_MAX);
static_assert((int)TQP_OFFLOAD_READ_VALID == (int)NUPA_READ_VALID);

static u32 nupa_access(int access)
{
	return (access & IB_ACCESS_LOCAL_WRITE ? NUPA_ACCESS_LOCAL_WRITE : 0) |
	       (access & IB_ACCESS_REMOTE_WRITE ? NUPA_ACCESS_REMOTE_WRITE : 0) |
	       (access & IB_ACCESS_REMOTE_READ ? NUPA_ACCESS_REMOTE_READ : 0) |
	       (access & IB_ACCESS_REMOTE_ATOMIC ? NUPA_ACCESS_REMOTE_ATOMIC : 0);
}

static u32 nupa_qp_flags(u32 flags)
{
	return NUPA_QP_F_SHADOW | (flags & TQP_OFFLOAD_QP_TX_V0 ? NUPA_QP_F_TX_V0 : 0) |
	       (flags & TQP_OFFLOAD_QP_NO_RQ ? NUPA_QP_F_NO_RQ : 0) |
	       (flags & TQP_OFFLOAD_QP_ICRC ? NUPA_QP_F_ICRC : 0) |
	       (flags & TQP_OFFLOAD_QP_REMOTE_WRITE ? NUPA_QP_F_REMOTE_WRITE : 0) |
	       (flags & TQP_OFFLOAD_QP_COMPLETE ? NUPA_QP_F_COMPLETE : 0) |
	       (flags & TQP_OFFLOAD_QP_SRQ ? NUPA_QP_F_SRQ : 0) |
	       (flags & TQP_OFFLOAD_QP_SENDS ? NUPA_QP_F_SENDS : 0);
}

static struct nupa_flow nupa_flow(const struct tqp_offload_flow *from)
{
	struct nupa_flow flow = {
		.family = from->family,
		.sport = from->sport,
		.dport = from->dport,
	};

	memcpy(flow.saddr, from->saddr, sizeof(flow.saddr));
	memcpy(flow.daddr, from->daddr, sizeof(flow.daddr));
	return flow;
}

static int nupa_mr_reg(struct tqp_offload_device *odev, const struct tqp_offload_mr *mr)
{
	struct nupa_admin_cmd cmd = {
		.op = cpu_to_le16(NUPA_ADMIN_MR_REG),
		.id = cpu_to_le32(mr->key),
		.mr.iova = cpu_to_le64(mr->iova),
		.mr.bytes = cpu_to_le64(mr->bytes),
		.mr.pages = cpu_to_le32(mr->nr_pages),
		.mr.pd = cpu_to_le32(mr->pd),
		.mr.access = cpu_to_le32(nupa_access(mr->access)),
		.mr.page_shift = mr->page_shift,
	};

	if (!mr->nr_pages)
		return -EINVAL;
	if (mr->nr_pages > NUPA_MR_PAGES_MAX)
		return -E2BIG;
	return nupa_create_by_table(nupa_of(odev), &cmd, &cmd.mr.table_addr, mr->pages, mr->nr_pages);
}

/*
 * 0, or -ENOENT: the switch does not touch what @op destroys any more.  A port that failed is
 * reset, at once if it was not before: who destroys something meanwhile waits a little for that.
 */
static int nupa_forget(struct nupa_dev *nupa, enum nupa_admin_op op, u32 id)
{
	int err = nupa_admin_simple(nupa, op, id);

	if (!err || err == -ENOENT)
		return err;
	if (!nupa_reset_wait(nupa, NUPA_FORGET_MS))
		return err;
	/* else the port failed, and was reset meanwhile */
	return nupa_forgotten(nupa) || err == -EIO || err == -ETIMEDOUT ? 0 : err;
}

static int nupa_mr_dereg(struct tqp_offload_device *odev, u32 key)
{
	return nupa_forget(nupa_of(odev), NUPA_ADMIN_MR_DEREG, key);
}

static void nupa_qp_command(struct nupa_admin_cmd *cmd, const struct tqp_offload_qp *qp)
{
	*cmd = (struct nupa_admin_cmd) {
		.op = cpu_to_le16(NUPA_ADMIN_QP_CREATE),
		.id = cpu_to_le32(qp->qpn),
		.qp.flow = nupa_flow(&qp->flow),
		.qp.pd = cpu_to_le32(qp->pd),
		.qp.flags = cpu_to_le32(nupa_qp_flags(qp->flags)),
		.qp.rcv_nxt = cpu_to_le32(qp->rcv_nxt),
		.qp.rcv_wscale = qp->rcv_wscale,
		.qp.rq_log2_bytes = qp->rq_log2_bytes,
		.qp.rq_sge_max = cpu_to_le16(qp->rq_sge_max),
		.qp.rq_mask = cpu_to_le32(qp->rq_mask),
		.qp.rq_base = cpu_to_le32(qp->rq_base),
		.qp.rq_pages = cpu_to_le32(qp->nr_rq_pages),
		.qp.shadow_addr = cpu_to_le64(qp->shadow),
		.qp.cq = cpu_to_le32(qp->cq),
		.qp.srq = cpu_to_le32(qp->srq),
		.qp.send_cq = cpu_to_le32(qp->send_cq),
	};
}

static int nupa_qp_create(struct tqp_offload_device *odev, const struct tqp_offload_qp *qp)
{
	struct nupa_dev *nupa = nupa_of(odev);
	struct nupa_admin_cmd cmd;

	if (qp->flags & ~NUPA_OFFLOAD_FLAGS)
		return -EOPNOTSUPP;
	if (qp->nr_rq_pages > NUPA_RQ_PAGES_MAX)
		return -E2BIG;
	nupa_qp_command(&cmd, qp);
	if (!qp->nr_rq_pages)		/* NUPA_QP_F_NO_RQ, NUPA_QP_F_SRQ */
		return nupa_create(nupa, &cmd, NULL);
	return nupa_create_by_table(nupa, &cmd, &cmd.qp.rq_table_addr, qp->rq_pages, qp->nr_rq_pages);
}

static int nupa_qp_destroy(struct tqp_offload_device *odev, u32 qpn)
{
	return nupa_forget(nupa_of(odev), NUPA_ADMIN_QP_DESTROY, qpn);
}

/* So is what guards a completion queue. */
static_assert(sizeof(struct tqp_offload_cq_ctl) == sizeof(struct nupa_cq_ctl));
static_assert(offsetof(struct tqp_offload_cq_ctl, prod) == offsetof(struct nupa_cq_ctl, prod));
static_assert(offsetof(struct tqp_offload_cq_ctl, waiting) == offsetof(struct nupa_cq_ctl, waiting));
static_assert((int)TQP_OFFLOAD_CQ_OWNER_NONE == (int)NUPA_CQ_OWNER_NONE);
static_assert((int)TQP_OFFLOAD_CQ_OWNER_HOST == (int)NUPA_CQ_OWNER_HOST);
static_assert((int)TQP_OFFLOAD_CQ_OWNER_NIC == (int)NUPA_CQ_OWNER_SWITCH);

/* Who is told that completions came.  A reference: the table's, and of each call. */
struct nupa_cq {
	void (*came)(void *arg);
	void *arg;
	refcount_t refs;
	struct completion unused;
};

static void nupa_cq_put(struct nupa_cq *cq)
{
	if (refcount_dec_and_test(&cq->refs))
		complete(&cq->unused);
}

/* Many may wait for one: other queues' interrupts do not wait meanwhile. */
void nupa_cq_came(struct nupa_dev *nupa, u32 id)
{
	unsigned long flags;
	struct nupa_cq *cq;

	xa_lock_irqsave(&nupa->cqs, flags);
	cq = xa_load(&nupa->cqs, id);
	if (cq)
		refcount_inc(&cq->refs);
	xa_unlock_irqrestore(&nupa->cqs, flags);
	if (!cq)
		return;
	cq->came(cq->arg);
	nupa_cq_put(cq);
}

/* Nobody is told any more when it returns. */
static void nupa_cq_forget(struct nupa_dev *nupa, u32 id)
{
	struct nupa_cq *cq = xa_erase_irq(&nupa->cqs, id);

	if (!cq)
		return;
	nupa_cq_put(cq);
	wait_for_completion(&cq->unused);
	kfree(cq);
}

static int nupa_cq_note(struct nupa_dev *nupa, const struct tqp_offload_cq *from)
{
	struct nupa_cq *cq = kmalloc(sizeof(*cq), GFP_KERNEL);
	int err;

	if (!cq)
		return -ENOMEM;
	cq->came = from->came;
	cq->arg = from->arg;
	refcount_set(&cq->refs, 1);
	init_completion(&cq->unused);
	err = xa_insert_irq(&nupa->cqs, from->id, cq, GFP_KERNEL);
	if (err)
		kfree(cq);
	return err;
}

static int nupa_cq_create(struct tqp_offload_device *odev, const struct tqp_offload_cq *cq)
{
	struct nupa_admin_cmd cmd = {
		.op = cpu_to_le16(NUPA_ADMIN_CQ_CREATE),
		.id = cpu_to_le32(cq->id),
		.cq.ctl_addr = cpu_to_le64(cq->ctl),
		.cq.pages = cpu_to_le32(cq->nr_pages),
		.cq.mask = cpu_to_le32(cq->mask),
	};
	struct nupa_dev *nupa = nupa_of(odev);
	int err;

	if (!(nupa->features & NUPA_FEAT_COMPLETE))
		return -EOPNOTSUPP;
	if (nupa->features & NUPA_FEAT_QUIET)
		cmd.cq.flags = cpu_to_le32(NUPA_CQ_F_WAITING);
	if (cq->nr_pages > NUPA_CQ_PAGES_MAX)
		return -E2BIG;
	err = nupa_cq_note(nupa, cq);
	if (err)
		return err;
	err = nupa_create_by_table(nupa, &cmd, &cmd.cq.table_addr, cq->pages, cq->nr_pages);
	if (err)
		nupa_cq_forget(nupa, cq->id);
	return err;
}

static int nupa_cq_destroy(struct tqp_offload_device *odev, u32 id)
{
	int err = nupa_forget(nupa_of(odev), NUPA_ADMIN_CQ_DESTROY, id);

	nupa_cq_forget(nupa_of(odev), id);
	return err;
}

/* And a shared receive queue. */
static_assert(sizeof(struct tqp_offload_srq_ctl) == sizeof(struct nupa_srq_ctl));
static_assert(offsetof(struct tqp_offload_srq_ctl, owner) == offsetof(struct nupa_srq_ctl, owner));
static_assert(offsetof(struct tqp_offload_srq_ctl, index) == offsetof(struct nupa_srq_ctl, index));

static int nupa_srq_create(struct tqp_offload_device *odev, const struct tqp_offload_srq *srq)
{
	struct nupa_admin_cmd cmd = {
		.op = cpu_to_le16(NUPA_ADMIN_SRQ_CREATE),
		.id = cpu_to_le32(srq->id),
		.srq.ctl_addr = cpu_to_le64(srq->ctl),
		.srq.pages = cpu_to_le32(srq->nr_pages),
		.srq.mask = cpu_to_le32(srq->mask),
		.srq.sge_max = cpu_to_le16(srq->sge_max),
		.srq.log2_bytes = srq->log2_bytes,
	};
	struct nupa_dev *nupa = nupa_of(odev);

	if (!(nupa->features & NUPA_FEAT_SRQ))
		return -EOPNOTSUPP;
	if (srq->nr_pages > NUPA_RQ_PAGES_MAX)
		return -E2BIG;
	return nupa_create_by_table(nupa, &cmd, &cmd.srq.table_addr, srq->pages, srq->nr_pages);
}

static int nupa_srq_destroy(struct tqp_offload_device *odev, u32 id)
{
	return nupa_forget(nupa_of(odev), NUPA_ADMIN_SRQ_DESTROY, id);
}

/* The post is the same memory to tcp_qp and to the switch. */
static_assert(sizeof(struct tqp_offload_post) == sizeof(struct nupa_post));
static_assert(offsetof(struct tqp_offload_post, placed) == offsetof(struct nupa_post, placed));
static_assert(offsetof(struct tqp_offload_post, seq) == offsetof(struct nupa_post, seq));
static_assert(offsetof(struct tqp_offload_post, bytes) == offsetof(struct nupa_post, bytes));
static_assert(offsetof(struct tqp_offload_post, offset) == offsetof(struct nupa_post, offset));
static_assert((int)TQP_OFFLOAD_POST_NONE == (int)NUPA_POST_NONE);
static_assert((int)TQP_OFFLOAD_POST_OPEN == (int)NUPA_POST_OPEN);
static_assert((int)TQP_OFFLOAD_POST_BUSY == (int)NUPA_POST_BUSY);

static int nupa_stream_create(struct tqp_offload_device *odev,
			      const struct tqp_offload_stream *stream)
{
	struct nupa_admin_cmd cmd = {
		.op = cpu_to_le16(NUPA_ADMIN_QP_CREATE),
		.id = cpu_to_le32(stream->id),
		.qp.flow = nupa_flow(&stream->flow),
		.qp.flags = cpu_to_le32(NUPA_QP_F_STREAM),
		.qp.rcv_nxt = cpu_to_le32(stream->rcv_nxt),
		.qp.rcv_wscale = stream->rcv_wscale,
		.qp.post_addr = cpu_to_le64(stream->post),
		.qp.post_pages = cpu_to_le32(stream->post_pages),
	};
	struct nupa_dev *nupa = nupa_of(odev);

	if (!(nupa->features & NUPA_FEAT_STREAM))
		return -EOPNOTSUPP;
	if (stream->post_pages > NUPA_POST_PAGES_MAX)
		return -E2BIG;
	return nupa_create(nupa, &cmd, NULL);
}

static int nupa_stream_destroy(struct tqp_offload_device *odev, u32 id)
{
	int err = nupa_forget(nupa_of(odev), NUPA_ADMIN_QP_DESTROY, id);

	return err == -ENOENT ? 0 : err;
}

static bool nupa_is_quiet(struct tqp_offload_device *odev, u32 napi_id)
{
	struct nupa_dev *nupa = nupa_of(odev);

	for (int i = 0; i < nupa->nr_queues; i++) {
		struct nupa_queue *q = &nupa->queues[i];

		if (q->napi.napi_id == napi_id)
			return nupa_rx_is_empty(q) || (nupa_rx_quiet(q) && !nupa_rx_due(q));
	}
	return false;
}

static bool nupa_rx_all_passed(struct tqp_offload_device *odev)
{
	struct nupa_dev *nupa = nupa_of(odev);
	unsigned long until = jiffies + msecs_to_jiffies(NUPA_RX_PASSED_MS);

	for (int i = 0; i < nupa->nr_queues; i++)
		if (!nupa_rx_passed(&nupa->queues[i], until))
			return false;
	return true;
}

static const struct tqp_offload_ops nupa_qp_ops = {
	.mr_reg = nupa_mr_reg,
	.mr_dereg = nupa_mr_dereg,
	.qp_create = nupa_qp_create,
	.qp_destroy = nupa_qp_destroy,
	.cq_create = nupa_cq_create,
	.cq_destroy = nupa_cq_destroy,
	.srq_create = nupa_srq_create,
	.srq_destroy = nupa_srq_destroy,
	.stream_create = nupa_stream_create,
	.stream_destroy = nupa_stream_destroy,
	.is_quiet = nupa_is_quiet,
	.rx_passed = nupa_rx_all_passed,
};

static void nupa_qp_release(struct device *dev)
{
	struct tqp_offload_device *odev = to_tqp_offload_device(to_auxiliary_dev(dev));

	kfree(container_of(odev, struct nupa_qp_dev, odev));
}

static struct nupa_qp_dev *nupa_qp_alloc(struct nupa_dev *nupa)
{
	struct nupa_qp_dev *qp_dev = kzalloc(sizeof(*qp_dev), GFP_KERNEL);

	if (!qp_dev)
		return NULL;
	qp_dev->nupa = nupa;
	qp_dev->odev = (struct tqp_offload_device) {
		.adev.name = TQP_OFFLOAD_ADEV_NAME,
		.adev.dev.parent = nupa_device(nupa),
		.adev.dev.release = nupa_qp_release,
		.netdev = nupa->netdev,
		.dma_dev = nupa_device(nupa),
		.ops = &nupa_qp_ops,
		.tx_flags = NUPA_OFFLOAD_TX_FLAGS,
		.mixed_trains = true,
		.completes_sends = nupa->features & NUPA_FEAT_SENDS,
	};
	return qp_dev;
}

int nupa_qp_add(struct nupa_dev *nupa)
{
	struct nupa_qp_dev *qp_dev;
	int err;

	if (!(nupa->features & NUPA_FEAT_QP))
		return 0;
	qp_dev = nupa_qp_alloc(nupa);
	if (!qp_dev)
		return -ENOMEM;
	err = auxiliary_device_init(&qp_dev->odev.adev);
	if (err) {
		nupa_qp_release(&qp_dev->odev.adev.dev);
		return err;
	}
	err = tqp_offload_device_add(&qp_dev->odev);
	if (err) {
		auxiliary_device_uninit(&qp_dev->odev.adev);	/* releases it */
		return err;
	}
	mutex_lock(&nupa->qp_lock);
	nupa->qp_dev = qp_dev;
	mutex_unlock(&nupa->qp_lock);
	return 0;
}

void nupa_qp_remove(struct nupa_dev *nupa)
{
	struct nupa_qp_dev *qp_dev;

	mutex_lock(&nupa->qp_lock);
	qp_dev = nupa->qp_dev;
	nupa->qp_dev = NULL;
	mutex_unlock(&nupa->qp_lock);
	if (!qp_dev)
		return;
	auxiliary_device_delete(&qp_dev->odev.adev);
	auxiliary_device_uninit(&qp_dev->odev.adev);
}
