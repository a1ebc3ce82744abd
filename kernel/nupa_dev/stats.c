// SPDX-License-Identifier: GPL-2.0
/* Counters: ours per queue, the switch's per port, and how they are shown. */
#include <linux/dma-mapping.h>
#include <linux/ethtool.h>
#include <net/netdev_queues.h>
#include "nupa.h"

enum {
	NUPA_STATS_MAX = MAX_T(int, NUPA_STAT_COUNT, NUPA_QP_STAT_COUNT),
	NUPA_STATS_BYTES = NUPA_STATS_MAX * sizeof(__le64),
};

#define NUPA_NAME_SWITCH(name) "switch_" #name,
#define NUPA_NAME_TX(name) "tx_" #name,
#define NUPA_NAME_RX(name) "rx_" #name,
static const char nupa_switch_names[][ETH_GSTRING_LEN] = { NUPA_STATS(NUPA_NAME_SWITCH) };
static const char nupa_tx_names[][ETH_GSTRING_LEN] = { NUPA_TX_STATS(NUPA_NAME_TX) };
static const char nupa_rx_names[][ETH_GSTRING_LEN] = { NUPA_RX_STATS(NUPA_NAME_RX) };

/* of the whole device, after the sums over the queues */
enum { NUPA_MISC_interrupts, NUPA_MISC_recoveries, NUPA_MISC_COUNT };
static const char nupa_misc_names[NUPA_MISC_COUNT][ETH_GSTRING_LEN] = {
	[NUPA_MISC_interrupts] = "interrupts",
	[NUPA_MISC_recoveries] = "recoveries",
};

enum { NUPA_PER_QUEUE = 4 };	/* packets and bytes, both ways */

static_assert(ARRAY_SIZE(nupa_switch_names) == NUPA_STAT_COUNT);
static_assert(ARRAY_SIZE(nupa_tx_names) == NUPA_TXS_COUNT);
static_assert(ARRAY_SIZE(nupa_rx_names) == NUPA_RXS_COUNT);

int nupa_stats_alloc(struct nupa_dev *nupa)
{
	nupa->stats = dma_alloc_coherent(nupa_device(nupa), NUPA_STATS_BYTES, &nupa->stats_dma,
					 GFP_KERNEL);
	return nupa->stats ? 0 : -ENOMEM;
}

void nupa_stats_free(struct nupa_dev *nupa)
{
	if (nupa_failed(nupa))
		return;		/* a command may still be written to it: given up, as receive memory */
	dma_free_coherent(nupa_device(nupa), NUPA_STATS_BYTES, nupa->stats, nupa->stats_dma);
}

/* The port's own, as the switch counts them; zeros if the port has failed. */
static void nupa_stats_read(struct nupa_dev *nupa, u64 out[NUPA_STAT_COUNT])
{
	struct nupa_admin_cmd cmd = {
		.op = cpu_to_le16(NUPA_ADMIN_STATS),
		.stats.addr = cpu_to_le64(nupa->stats_dma),
		.stats.count = cpu_to_le32(NUPA_STAT_COUNT),
	};
	struct nupa_admin_comp comp;
	u64 written;
	int i;

	memset(out, 0, NUPA_STAT_COUNT * sizeof(*out));
	mutex_lock(&nupa->stats_lock);
	if (!nupa_admin_submit(nupa, &cmd, &comp)) {
		written = min_t(u64, NUPA_STAT_COUNT, le64_to_cpu(comp.value));
		for (i = 0; i < written; i++)
			out[i] = le64_to_cpu(READ_ONCE(nupa->stats[i]));
	}
	mutex_unlock(&nupa->stats_lock);
}

static void nupa_tx_fetch(const struct nupa_queue *q, u64 out[NUPA_TXS_COUNT])
{
	unsigned int start;
	int i;

	do {
		start = u64_stats_fetch_begin(&q->tx_stats.syncp);
		for (i = 0; i < NUPA_TXS_COUNT; i++)
			out[i] = u64_stats_read(&q->tx_stats.v[i]);
	} while (u64_stats_fetch_retry(&q->tx_stats.syncp, start));
}

static void nupa_rx_fetch(const struct nupa_queue *q, u64 out[NUPA_RXS_COUNT])
{
	unsigned int start;
	int i;

	do {
		start = u64_stats_fetch_begin(&q->rx_stats.syncp);
		for (i = 0; i < NUPA_RXS_COUNT; i++)
			out[i] = u64_stats_read(&q->rx_stats.v[i]);
	} while (u64_stats_fetch_retry(&q->rx_stats.syncp, start));
}

void nupa_stats64(struct net_device *dev, struct rtnl_link_stats64 *out)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	u64 tx[NUPA_TXS_COUNT], rx[NUPA_RXS_COUNT];
	int i;

	for (i = 0; i < nupa->queues_max; i++) {
		nupa_tx_fetch(&nupa->queues[i], tx);
		nupa_rx_fetch(&nupa->queues[i], rx);
		out->tx_packets += tx[NUPA_TXS_packets];
		out->tx_bytes += tx[NUPA_TXS_bytes];
		out->tx_dropped += tx[NUPA_TXS_drops];
		out->rx_packets += rx[NUPA_RXS_packets];
		out->rx_bytes += rx[NUPA_RXS_bytes];
		out->rx_dropped += rx[NUPA_RXS_drops];
		out->rx_errors += rx[NUPA_RXS_invalid];
		out->rx_crc_errors += rx[NUPA_RXS_csum_bad];
	}
}

/* ---- of a queue, by netlink (qstats-get) ---- */

static void nupa_qstats_rx(struct net_device *dev, int index, struct netdev_queue_stats_rx *out)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	u64 rx[NUPA_RXS_COUNT];

	nupa_rx_fetch(&nupa->queues[index], rx);
	out->packets = rx[NUPA_RXS_packets];
	out->bytes = rx[NUPA_RXS_bytes];
	out->alloc_fail = rx[NUPA_RXS_alloc_failures];
}

static void nupa_qstats_tx(struct net_device *dev, int index, struct netdev_queue_stats_tx *out)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	u64 tx[NUPA_TXS_COUNT];

	nupa_tx_fetch(&nupa->queues[index], tx);
	out->packets = tx[NUPA_TXS_packets];
	out->bytes = tx[NUPA_TXS_bytes];
}

/* What queues have counted that are not used now. */
static void nupa_qstats_base(struct net_device *dev, struct netdev_queue_stats_rx *rx,
			     struct netdev_queue_stats_tx *tx)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	struct netdev_queue_stats_rx one_rx;
	struct netdev_queue_stats_tx one_tx;
	int i;

	rx->packets = 0;
	rx->bytes = 0;
	rx->alloc_fail = 0;
	tx->packets = 0;
	tx->bytes = 0;
	for (i = dev->real_num_rx_queues; i < nupa->queues_max; i++) {
		nupa_qstats_rx(dev, i, &one_rx);
		nupa_qstats_tx(dev, i, &one_tx);
		rx->packets += one_rx.packets;
		rx->bytes += one_rx.bytes;
		rx->alloc_fail += one_rx.alloc_fail;
		tx->packets += one_tx.packets;
		tx->bytes += one_tx.bytes;
	}
}

const struct netdev_stat_ops nupa_stat_ops = {
	.get_queue_stats_rx = nupa_qstats_rx,
	.get_queue_stats_tx = nupa_qstats_tx,
	.get_base_stats = nupa_qstats_base,
};

int nupa_stats_count(struct net_device *dev, int set)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	if (set == ETH_SS_PRIV_FLAGS)
		return nupa->features & NUPA_FEAT_WATCH ? NUPA_PRIV_COUNT : 0;
	if (set != ETH_SS_STATS)
		return -EOPNOTSUPP;
	return NUPA_TXS_COUNT + NUPA_RXS_COUNT + NUPA_MISC_COUNT + NUPA_STAT_COUNT +
	       nupa->queues_max * NUPA_PER_QUEUE;
}

void nupa_stats_strings(struct net_device *dev, u32 set, u8 *data)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	int i;

	if (set == ETH_SS_PRIV_FLAGS)
		ethtool_puts(&data, "tx-watch");
	if (set != ETH_SS_STATS)
		return;
	for (i = 0; i < NUPA_TXS_COUNT; i++)
		ethtool_puts(&data, nupa_tx_names[i]);
	for (i = 0; i < NUPA_RXS_COUNT; i++)
		ethtool_puts(&data, nupa_rx_names[i]);
	for (i = 0; i < NUPA_MISC_COUNT; i++)
		ethtool_puts(&data, nupa_misc_names[i]);
	for (i = 0; i < nupa->queues_max; i++) {
		ethtool_sprintf(&data, "tx%d_packets", i);
		ethtool_sprintf(&data, "tx%d_bytes", i);
		ethtool_sprintf(&data, "rx%d_packets", i);
		ethtool_sprintf(&data, "rx%d_bytes", i);
	}
	for (i = 0; i < NUPA_STAT_COUNT; i++)
		ethtool_puts(&data, nupa_switch_names[i]);
}

void nupa_stats_get(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	u64 *tx_sum = data, *rx_sum = tx_sum + NUPA_TXS_COUNT, *misc = rx_sum + NUPA_RXS_COUNT;
	struct nupa_dev *nupa = netdev_priv(dev);
	u64 *per_queue = misc + NUPA_MISC_COUNT;
	u64 tx[NUPA_TXS_COUNT], rx[NUPA_RXS_COUNT];
	int i, j;

	memset(data, 0, stats->n_stats * sizeof(*data));
	for (i = 0; i < nupa->queues_max; i++, per_queue += NUPA_PER_QUEUE) {
		nupa_tx_fetch(&nupa->queues[i], tx);
		nupa_rx_fetch(&nupa->queues[i], rx);
		for (j = 0; j < NUPA_TXS_COUNT; j++)
			tx_sum[j] += tx[j];
		for (j = 0; j < NUPA_RXS_COUNT; j++)
			rx_sum[j] += rx[j];
		misc[NUPA_MISC_interrupts] += READ_ONCE(nupa->queues[i].irqs);
		per_queue[0] = tx[NUPA_TXS_packets];
		per_queue[1] = tx[NUPA_TXS_bytes];
		per_queue[2] = rx[NUPA_RXS_packets];
		per_queue[3] = rx[NUPA_RXS_bytes];
	}
	misc[NUPA_MISC_recoveries] = READ_ONCE(nupa->recoveries);
	nupa_stats_read(nupa, per_queue);
}
