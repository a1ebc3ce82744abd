// SPDX-License-Identifier: GPL-2.0
/* Queue pairs: memory, NAPI, vectors, and their twins in the switch. */
#include <linux/interrupt.h>
#include "nupa.h"

static irqreturn_t nupa_queue_isr(int irq, void *data)
{
	struct nupa_queue *q = data;

	q->irqs++;
	if (nupa_rx_quiet(q) && !nupa_tx_done(q)) {
		nupa_rx_wake(q);
		return IRQ_HANDLED;
	}
	nupa_tx_disarm(q);
	napi_schedule_irqoff(&q->napi);
	return IRQ_HANDLED;
}

static int nupa_queue_poll(struct napi_struct *napi, int budget)
{
	struct nupa_queue *q = container_of(napi, struct nupa_queue, napi);
	int done = 0;

	nupa_tx_poll(q, budget);
	if (!budget)		/* netpoll: transmit only */
		return 0;
	done = nupa_rx_poll(q, budget);
	if (done == budget)
		return done;
	if (napi_complete_done(napi, done)) {
		bool again = nupa_tx_arm(q);

		/* both events are armed before either is trusted */
		if (nupa_rx_arm(q) || again)
			napi_schedule(napi);
	}
	return done;
}

static bool nupa_zero_page_alloc(struct nupa_dev *nupa)
{
	for (int order = NUPA_ZERO_ORDER_MAX; order >= NUPA_ZERO_ORDER_MIN; order--) {
		gfp_t gfp = GFP_KERNEL | __GFP_COMP | __GFP_ZERO;

		if (order > NUPA_ZERO_ORDER_MIN)
			gfp |= __GFP_NORETRY | __GFP_NOWARN;
		nupa->zero_page = alloc_pages(gfp, order);
		nupa->zero_bytes = PAGE_SIZE << order;
		if (nupa->zero_page)
			return true;
	}
	return false;
}

int nupa_queues_init(struct nupa_dev *nupa)
{
	struct nupa_ring_ctl *tx = nupa->bar2 + NUPA_BAR2_TXQ_AT;
	struct nupa_rxq_ctl *rx = nupa->bar2 + NUPA_BAR2_RXQ_AT;
	int i;

	if (!nupa_zero_page_alloc(nupa))
		return -ENOMEM;
	nupa->queues = kcalloc(nupa->queues_max, sizeof(*nupa->queues), GFP_KERNEL);
	if (!nupa->queues) {
		put_page(nupa->zero_page);
		return -ENOMEM;
	}
	for (i = 0; i < nupa->queues_max; i++) {
		struct nupa_queue *q = &nupa->queues[i];

		q->nupa = nupa;
		q->index = i;
		q->tx.ctl = &tx[i];
		q->rx.ctl = &rx[i];
		spin_lock_init(&q->tx.clean_lock);
		timer_setup(&q->rx_retry, nupa_rx_retry, 0);
		u64_stats_init(&q->tx_stats.syncp);
		u64_stats_init(&q->rx_stats.syncp);
		snprintf(q->irq_name, sizeof(q->irq_name), "%s-%d", pci_name(nupa->pdev), i);
	}
	return 0;
}

void nupa_queues_exit(struct nupa_dev *nupa)
{
	kfree(nupa->queues);
	put_page(nupa->zero_page);	/* skbs may still hold it */
}

/* The page pool names the NAPI, so that lives as long as the rings. */
static int nupa_queue_alloc(struct nupa_queue *q)
{
	netif_napi_add_locked(q->nupa->netdev, &q->napi, nupa_queue_poll);
	q->listed = true;
	return nupa_tx_alloc(q, q->nupa->tx_entries) ?:
	       nupa_rx_alloc(q, &q->rx);
}

int nupa_queues_alloc(struct nupa_dev *nupa)
{
	int i, err = 0;

	nupa->quiet = true;		/* the switch does not know these rings yet */
	for (i = 0; i < nupa->nr_queues && !err; i++)
		err = nupa_queue_alloc(&nupa->queues[i]);
	if (err)
		nupa_queues_free(nupa);
	return err;
}

void nupa_queues_free(struct nupa_dev *nupa)
{
	int i;

	if (!nupa->quiet)
		dev_warn(nupa_device(nupa), "receive memory is lost: the switch may still write it\n");
	for (i = 0; i < nupa->queues_max; i++) {
		struct nupa_queue *q = &nupa->queues[i];

		nupa_tx_free(q);
		nupa_rx_free(nupa, &q->rx, nupa->quiet);
		if (q->listed)
			netif_napi_del_locked(&q->napi);
		q->listed = false;
	}
}

static int nupa_queue_start(struct nupa_queue *q)
{
	struct nupa_dev *nupa = q->nupa;
	int cpu = cpumask_local_spread(q->index, dev_to_node(nupa_device(nupa)));
	int irq = pci_irq_vector(nupa->pdev, nupa_queue_vector(q));
	int err;

	err = request_irq(irq, nupa_queue_isr, 0, q->irq_name, q);
	if (err)
		return err;
	q->irq_held = true;
	irq_set_affinity_and_hint(irq, cpumask_of(cpu));
	netif_set_xps_queue(nupa->netdev, cpumask_of(cpu), q->index);
	netif_napi_set_irq_locked(&q->napi, irq);
	napi_enable_locked(&q->napi);
	netif_queue_set_napi(nupa->netdev, q->index, NETDEV_QUEUE_TYPE_RX, &q->napi);
	netif_queue_set_napi(nupa->netdev, q->index, NETDEV_QUEUE_TYPE_TX, &q->napi);
	return 0;
}

static void nupa_queue_stop(struct nupa_queue *q)
{
	struct nupa_dev *nupa = q->nupa;
	int irq = pci_irq_vector(nupa->pdev, nupa_queue_vector(q));

	if (!q->irq_held)
		return;
	q->irq_held = false;
	netif_queue_set_napi(nupa->netdev, q->index, NETDEV_QUEUE_TYPE_RX, NULL);
	netif_queue_set_napi(nupa->netdev, q->index, NETDEV_QUEUE_TYPE_TX, NULL);
	irq_update_affinity_hint(irq, NULL);
	free_irq(irq, q);
	napi_disable_locked(&q->napi);
	nupa_rx_quiesce(q);
}

int nupa_queues_start(struct nupa_dev *nupa)
{
	int i, err = 0;

	for (i = 0; i < nupa->nr_queues && !err; i++)
		err = nupa_queue_start(&nupa->queues[i]);
	if (err)
		nupa_queues_stop(nupa);
	return err;
}

/* NAPI first: it alone could wake a transmit queue that was just disabled. */
void nupa_queues_stop(struct nupa_dev *nupa)
{
	int i;

	for (i = 0; i < nupa->nr_queues; i++)
		nupa_queue_stop(&nupa->queues[i]);
	netif_tx_disable(nupa->netdev);
}

int nupa_queues_create(struct nupa_dev *nupa)
{
	int i, err = 0;

	for (i = 0; i < nupa->nr_queues && !err; i++)
		err = nupa_tx_create(&nupa->queues[i]) ?: nupa_rx_create(&nupa->queues[i]);
	return err;
}

/* Also after a partial create: what was not there is as good as gone. */
int nupa_queues_destroy(struct nupa_dev *nupa)
{
	int i, err = 0;

	for (i = 0; i < nupa->nr_queues; i++) {
		int tx = nupa_admin_simple(nupa, NUPA_ADMIN_TXQ_DESTROY, i);
		int rx = nupa_admin_simple(nupa, NUPA_ADMIN_RXQ_DESTROY, i);

		if ((tx && tx != -ENOENT) || (rx && rx != -ENOENT))
			err = -EIO;
	}
	return err;
}

/* One poll arms the events and takes what came meanwhile. */
void nupa_queue_kick(struct nupa_queue *q)
{
	local_bh_disable();
	napi_schedule(&q->napi);
	local_bh_enable();
}

void nupa_queues_kick(struct nupa_dev *nupa)
{
	int i;

	for (i = 0; i < nupa->nr_queues; i++)
		nupa_queue_kick(&nupa->queues[i]);
}
