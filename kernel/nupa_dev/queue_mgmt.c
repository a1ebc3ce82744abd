// SPDX-License-Identifier: GPL-2.0
/*
 * Exchange the rings of one receive queue while the port works, as binding
 * device memory to it asks (devmem TCP; docs/devmem.md).
 *
 * A "memory" of the core is a struct nupa_rxq.  The new one is made beside the
 * old one; then NAPI of the queue pair stops, the switch forgets the old rings,
 * is given the new ones, and NAPI goes on.  What came meanwhile is dropped.
 * All of it is under the netdev's lock, as are open, stop and recovery.
 */
#include <linux/interrupt.h>
#include <linux/netdevice.h>
#include <net/netdev_queues.h>
#include <net/netdev_rx_queue.h>
#include <net/page_pool/helpers.h>
#include "nupa.h"

static bool nupa_mgmt_works(const struct nupa_dev *nupa, int index)
{
	return nupa->up && !nupa_failed(nupa) && index < nupa->nr_queues;
}

static int nupa_mgmt_alloc(struct net_device *dev, NUPA_QUEUE_CONFIG void *memory, int index)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	struct nupa_queue *q = &nupa->queues[index];
	struct nupa_rxq *rx = memory;
	int err;

	if (!nupa_mgmt_works(nupa, index))
		return -ENETDOWN;	/* open and recovery look at what is bound themselves */
	rx->ctl = q->rx.ctl;
	err = nupa_rx_alloc(q, rx);
	if (!err && rx->fill.beyond)
		err = -EFAULT;
	if (err)
		nupa_rx_free(nupa, rx, true);
	return err;
}

static void nupa_mgmt_free(struct net_device *dev, void *memory)
{
	nupa_rx_free(netdev_priv(dev), memory, true);
}

static void nupa_mgmt_link(struct nupa_queue *q)
{
	page_pool_enable_direct_recycling(q->rx.fill.pool, &q->napi);
	if (q->rx.longs.entries)
		page_pool_enable_direct_recycling(q->rx.longs.pool, &q->napi);
}

/* The rings of @q become @rx's; the queue has none then. */
static void nupa_mgmt_take_out(struct nupa_queue *q, struct nupa_rxq *rx)
{
	page_pool_disable_direct_recycling(q->rx.fill.pool);
	if (q->rx.longs.entries)
		page_pool_disable_direct_recycling(q->rx.longs.pool);
	*rx = q->rx;
	memset_after(&q->rx, 0, ctl);	/* who sends on another CPU looks at that one */
}

/* Leaves NAPI disabled: start follows, with these rings or others. */
static int nupa_mgmt_stop(struct net_device *dev, void *memory, int index)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	struct nupa_queue *q = &nupa->queues[index];

	napi_disable_locked(&q->napi);
	synchronize_irq(pci_irq_vector(nupa->pdev, nupa_queue_vector(q)));	/* it may read completions */
	nupa_rx_quiesce(q);
	if (!nupa_admin_simple(nupa, NUPA_ADMIN_RXQ_DESTROY, index)) {
		nupa_mgmt_take_out(q, memory);
		return 0;
	}
	/* The switch may still write these rings: recovery deals with them. */
	nupa_fail(nupa, "a receive queue could not be destroyed");
	napi_enable_locked(&q->napi);
	return -ENETDOWN;
}

static int nupa_mgmt_start(struct net_device *dev, NUPA_QUEUE_CONFIG void *memory, int index)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	struct nupa_queue *q = &nupa->queues[index];
	struct nupa_rxq *rx = memory;
	int err;

	q->rx = *rx;
	nupa_mgmt_link(q);
	err = nupa_rx_create(q);
	if (err && !rx->ran && !nupa_failed(nupa)) {	/* the switch has no room for these rings */
		nupa_mgmt_take_out(q, rx);
		return err;
	}
	/* The old rings must start again, and the core has no answer if they don't. */
	if (err)
		nupa_fail(nupa, "a receive queue could not be created again");
	napi_enable_locked(&q->napi);
	nupa_queue_kick(q);
	return 0;
}

static const struct netdev_queue_mgmt_ops nupa_queue_mgmt_ops = {
	.ndo_queue_mem_size = sizeof(struct nupa_rxq),
	.ndo_queue_mem_alloc = nupa_mgmt_alloc,
	.ndo_queue_mem_free = nupa_mgmt_free,
	.ndo_queue_start = nupa_mgmt_start,
	.ndo_queue_stop = nupa_mgmt_stop,
};

void nupa_queue_mgmt_init(struct net_device *dev)
{
	dev->queue_mgmt_ops = &nupa_queue_mgmt_ops;
}

bool nupa_device_memory_bound(struct nupa_dev *nupa)
{
	int i;

	netdev_assert_locked(nupa->netdev);
	for (i = 0; i < nupa->queues_max; i++)
		if (__netif_get_rx_queue(nupa->netdev, i)->mp_params.mp_ops)
			return true;
	return false;
}
