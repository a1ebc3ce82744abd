// SPDX-License-Identifier: GPL-2.0
/* The contract of tqp_offload.h: tables of regions and queue pairs. */
#include <linux/jhash.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include "softnic.h"

enum {
	SNIC_RQ_MASK_MAX = (1 << 15) - 1,	/* msn arithmetic needs less than half of 16 bits */
	SNIC_RQ_LOG2_MAX = 12,
	SNIC_PAGE_SHIFT_MAX = 30,
};

static u32 qps_max = 1 << 16, mrs_max = 1 << 16;
module_param(qps_max, uint, 0644);
MODULE_PARM_DESC(qps_max, "queue pairs that the table of one NIC takes");
module_param(mrs_max, uint, 0644);
MODULE_PARM_DESC(mrs_max, "regions that the table of one NIC takes");

/* Its life is the auxiliary device's, which may be longer than the NIC's. */
struct snic_provider {
	struct tqp_offload_device odev;
	struct snic_nic *nic;
};

static struct snic_nic *snic_nic_of(struct tqp_offload_device *odev)
{
	return container_of(odev, struct snic_provider, odev)->nic;
}

/* tcp_qp has the order of calls wrong: refused, counted, and no harm done. */
static int snic_wrong_order(struct snic_nic *nic, int err)
{
	snic_count(nic, SNIC_S_wrong_order, 1);
	return err;
}

/* ---- regions ---- */

static int snic_mr_check(const struct tqp_offload_mr *mr)
{
	u64 last = mr->iova + (mr->bytes - 1);

	if (!mr->bytes || last < mr->iova || mr->page_shift < PAGE_SHIFT ||
	    mr->page_shift > SNIC_PAGE_SHIFT_MAX)
		return -EINVAL;
	return (last >> mr->page_shift) - (mr->iova >> mr->page_shift) + 1 == mr->nr_pages ? 0 : -EINVAL;
}

/* Under nic->lock: what is found there stays until it is given back. */
static int snic_enter(struct snic_nic *nic, u32 *count, u32 most)
{
	int err = 0;

	spin_lock_bh(&nic->lock);
	if (*count >= most)
		err = -ENOSPC;
	else
		++*count;
	spin_unlock_bh(&nic->lock);
	return err;
}

static void snic_leave(struct snic_nic *nic, u32 *count)
{
	spin_lock_bh(&nic->lock);
	--*count;
	spin_unlock_bh(&nic->lock);
}

static int snic_mr_reg(struct tqp_offload_device *odev, const struct tqp_offload_mr *mr)
{
	struct snic_nic *nic = snic_nic_of(odev);
	struct snic_mr *own;
	int err;

	might_sleep();
	err = snic_mr_check(mr) ?: snic_enter(nic, &nic->nr_mrs, READ_ONCE(mrs_max));
	if (err)
		return err;
	own = kvmalloc(struct_size(own, pages, mr->nr_pages), GFP_KERNEL);
	if (!own) {
		err = -ENOMEM;
		goto leave;
	}
	*own = (struct snic_mr){
		.key = mr->key,
		.pd = mr->pd,
		.access = mr->access,
		.iova = mr->iova,
		.bytes = mr->bytes,
		.nr_pages = mr->nr_pages,
		.page_shift = mr->page_shift,
	};
	memcpy(own->pages, mr->pages, mr->nr_pages * sizeof(*mr->pages));
	err = xa_insert(&nic->mrs, mr->key, own, GFP_KERNEL);
	if (!err)
		return 0;
	if (err == -EBUSY)
		err = snic_wrong_order(nic, -EEXIST);
	kvfree(own);
leave:
	snic_leave(nic, &nic->nr_mrs);
	return err;
}

/* Whoever places holds the lock: nobody finds it any more, and nobody who has is at it. */
static int snic_mr_dereg(struct tqp_offload_device *odev, u32 key)
{
	struct snic_nic *nic = snic_nic_of(odev);
	struct snic_mr *mr;

	might_sleep();
	mr = xa_erase(&nic->mrs, key);
	if (!mr)
		return snic_wrong_order(nic, -ENOENT);
	snic_leave(nic, &nic->nr_mrs);
	kvfree(mr);
	return 0;
}

/* ---- queue pairs ---- */

static bool snic_flow_equal(const struct tqp_offload_flow *a, const struct tqp_offload_flow *b)
{
	return a->family == b->family && a->sport == b->sport && a->dport == b->dport &&
	       !memcmp(a->saddr, b->saddr, sizeof(a->saddr)) &&
	       !memcmp(a->daddr, b->daddr, sizeof(a->daddr));
}

static struct hlist_head *snic_bucket(struct snic_nic *nic, const struct tqp_offload_flow *flow)
{
	u32 hash = jhash_2words((__force u32)flow->sport << 16 | (__force u32)flow->dport,
				flow->family, 0);

	hash = jhash(flow->saddr, sizeof(flow->saddr), hash);
	hash = jhash(flow->daddr, sizeof(flow->daddr), hash);
	return &nic->flows[hash % SNIC_FLOW_BUCKETS];
}

struct snic_qp *snic_qp_of(struct snic_nic *nic, const struct tqp_offload_flow *flow)
{
	struct snic_qp *qp;

	lockdep_assert_held(&nic->lock);
	hlist_for_each_entry(qp, snic_bucket(nic, flow), node)
		if (snic_flow_equal(&qp->flow, flow))
			return qp;
	return NULL;
}

static int snic_rq_check(const struct tqp_offload_qp *qp)
{
	size_t element = 1UL << qp->rq_log2_bytes;

	if (qp->flags & TQP_OFFLOAD_QP_NO_RQ)
		return qp->nr_rq_pages ? -EINVAL : 0;
	if (!qp->rq_mask || qp->rq_mask > SNIC_RQ_MASK_MAX || qp->rq_mask & (qp->rq_mask + 1) ||
	    qp->rq_log2_bytes > SNIC_RQ_LOG2_MAX || qp->rq_sge_max > SNIC_SGE_MAX)
		return -EINVAL;
	if (sizeof(struct rxe_recv_wqe) + qp->rq_sge_max * sizeof(struct rxe_sge) > element)
		return -EINVAL;
	return sizeof(struct rxe_queue_buf) + ((size_t)qp->rq_mask + 1) * element <=
	       (size_t)qp->nr_rq_pages * PAGE_SIZE ? 0 : -EINVAL;
}

static struct snic_qp *snic_qp_alloc(const struct tqp_offload_qp *qp)
{
	struct snic_qp *own = kvzalloc(struct_size(own, rq_pages, qp->nr_rq_pages), GFP_KERNEL);

	if (!own)
		return NULL;
	own->qpn = qp->qpn;
	own->pd = qp->pd;
	own->flags = qp->flags;
	own->flow = qp->flow;
	own->wscale = qp->rcv_wscale;
	own->right_edge = qp->rcv_nxt;		/* nothing fits until the host advertises a window */
	own->seen.mark = qp->rcv_nxt;
	own->shadow = snic_memory(qp->shadow);
	own->rq_mask = qp->rq_mask;
	own->rq_base = qp->rq_base;
	own->rq_sge_max = qp->rq_sge_max;
	own->rq_log2_bytes = qp->rq_log2_bytes;
	own->nr_rq_pages = qp->nr_rq_pages;
	if (qp->nr_rq_pages)
		memcpy(own->rq_pages, qp->rq_pages, qp->nr_rq_pages * sizeof(*qp->rq_pages));
	return own;
}

/* From here on segments find it. */
static int snic_qp_publish(struct snic_nic *nic, struct snic_qp *qp)
{
	int err = 0;

	spin_lock_bh(&nic->lock);
	if (snic_qp_of(nic, &qp->flow))
		err = snic_wrong_order(nic, -EEXIST);
	else
		hlist_add_head(&qp->node, snic_bucket(nic, &qp->flow));
	spin_unlock_bh(&nic->lock);
	return err;
}

static int snic_qp_create(struct tqp_offload_device *odev, const struct tqp_offload_qp *qp)
{
	struct snic_nic *nic = snic_nic_of(odev);
	struct snic_qp *own;
	int err;

	might_sleep();
	if (qp->flags & ~(TQP_OFFLOAD_QP_NO_RQ | TQP_OFFLOAD_QP_REMOTE_WRITE))
		return -EOPNOTSUPP;
	err = snic_rq_check(qp) ?: snic_enter(nic, &nic->nr_qps, READ_ONCE(qps_max));
	if (err)
		return err;
	own = snic_qp_alloc(qp);
	err = own ? xa_insert(&nic->qps, qp->qpn, own, GFP_KERNEL) : -ENOMEM;
	if (err == -EBUSY)
		err = snic_wrong_order(nic, -EEXIST);
	if (err)
		goto leave;
	err = snic_qp_publish(nic, own);
	if (!err)
		return 0;
	xa_erase(&nic->qps, qp->qpn);
leave:
	kvfree(own);
	snic_leave(nic, &nic->nr_qps);
	return err;
}

static int snic_qp_destroy(struct tqp_offload_device *odev, u32 qpn)
{
	struct snic_nic *nic = snic_nic_of(odev);
	struct snic_qp *qp;

	might_sleep();
	qp = xa_erase(&nic->qps, qpn);
	if (!qp)
		return snic_wrong_order(nic, -ENOENT);
	spin_lock_bh(&nic->lock);
	hlist_del(&qp->node);
	nic->nr_qps--;
	spin_unlock_bh(&nic->lock);
	kvfree(qp);
	return 0;
}

static const struct tqp_offload_ops snic_ops = {
	.mr_reg = snic_mr_reg,
	.mr_dereg = snic_mr_dereg,
	.qp_create = snic_qp_create,
	.qp_destroy = snic_qp_destroy,
};

/* ---- the auxiliary device ---- */

static void snic_release(struct device *dev)
{
	struct tqp_offload_device *odev = to_tqp_offload_device(to_auxiliary_dev(dev));

	kfree(container_of(odev, struct snic_provider, odev));
}

int snic_offload_add(struct snic_nic *nic)
{
	struct snic_provider *provider = kzalloc(sizeof(*provider), GFP_KERNEL);
	int err;

	if (!provider)
		return -ENOMEM;
	provider->nic = nic;
	provider->odev = (struct tqp_offload_device){
		.adev.name = TQP_OFFLOAD_ADEV_NAME,
		.adev.dev.parent = &snic_platform->dev,
		.adev.dev.release = snic_release,
		.netdev = nic->netdev,
		.dma_dev = &snic_platform->dev,
		.ops = &snic_ops,
	};
	err = auxiliary_device_init(&provider->odev.adev);
	if (err) {
		kfree(provider);
		return err;
	}
	err = tqp_offload_device_add(&provider->odev);
	if (err) {
		auxiliary_device_uninit(&provider->odev.adev);	/* releases it */
		return err;
	}
	nic->provider = provider;
	return 0;
}

void snic_offload_remove(struct snic_nic *nic)
{
	struct snic_provider *provider = nic->provider;

	if (!provider)
		return;
	nic->provider = NULL;
	auxiliary_device_delete(&provider->odev.adev);
	/* by the contract tcp_qp has let go of everything now */
	WARN_ON_ONCE(!xa_empty(&nic->mrs) || !xa_empty(&nic->qps));
	auxiliary_device_uninit(&provider->odev.adev);
}
