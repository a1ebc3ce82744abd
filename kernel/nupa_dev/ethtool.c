// SPDX-License-Identifier: GPL-2.0
/* ethtool: rings, channels, link, and the tables of the rest. */
#include <linux/ethtool.h>
#include <linux/ethtool_netlink.h>
#include <linux/log2.h>
#include "nupa.h"

struct nupa_rings {
	u32 tx_entries, rx_entries, rx_long_entries;
	bool strict_split;
};

static void nupa_get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	strscpy(info->driver, NUPA_NAME, sizeof(info->driver));
	strscpy(info->bus_info, pci_name(nupa->pdev), sizeof(info->bus_info));
	snprintf(info->fw_version, sizeof(info->fw_version), "abi %u.%u port %u",
		 le16_to_cpu(READ_ONCE(nupa->regs->abi_major)),
		 le16_to_cpu(READ_ONCE(nupa->regs->abi_minor)),
		 le16_to_cpu(READ_ONCE(nupa->regs->port_id)));
}

static int nupa_get_link_ksettings(struct net_device *dev, struct ethtool_link_ksettings *set)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	ethtool_link_ksettings_zero_link_mode(set, supported);
	ethtool_link_ksettings_zero_link_mode(set, advertising);
	set->base.speed = netif_carrier_ok(dev) ? nupa_get(&nupa->regs->link_mbps) : SPEED_UNKNOWN;
	set->base.duplex = DUPLEX_FULL;
	set->base.autoneg = AUTONEG_DISABLE;
	set->base.port = PORT_OTHER;
	return 0;
}

static void nupa_get_ringparam(struct net_device *dev, struct ethtool_ringparam *ring,
			       struct kernel_ethtool_ringparam *kernel,
			       struct netlink_ext_ack *extack)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	ring->tx_max_pending = NUPA_RING_ENTRIES_MAX;
	ring->rx_max_pending = NUPA_RING_ENTRIES_MAX;
	ring->tx_pending = nupa->tx_entries;
	ring->rx_pending = nupa->rx_entries;
	/* of long buffers; 0: TCP_ZEROCOPY_RECEIVE can map what comes, which it can't of a long one */
	if (nupa->features & NUPA_FEAT_RX_LONG)
		ring->rx_jumbo_max_pending = NUPA_RX_LONG_ENTRIES_MAX;
	ring->rx_jumbo_pending = nupa->rx_long_entries;
	kernel->rx_buf_len = nupa->rx_buf_bytes;
	/* "on" is the promise that no payload, however small, shares a slot with headers */
	kernel->tcp_data_split = nupa->strict_split ? ETHTOOL_TCP_DATA_SPLIT_ENABLED :
						      ETHTOOL_TCP_DATA_SPLIT_DISABLED;
}

static void nupa_rings_change(struct nupa_dev *nupa, const void *arg)
{
	const struct nupa_rings *rings = arg;

	nupa->tx_entries = rings->tx_entries;
	nupa->rx_entries = rings->rx_entries;
	nupa->rx_long_entries = rings->rx_long_entries;
	nupa->strict_split = rings->strict_split;
}

static int nupa_set_ringparam(struct net_device *dev, struct ethtool_ringparam *ring,
			      struct kernel_ethtool_ringparam *kernel,
			      struct netlink_ext_ack *extack)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	struct nupa_rings old = {
		nupa->tx_entries, nupa->rx_entries, nupa->rx_long_entries, nupa->strict_split
	};
	struct nupa_rings new = old;
	int err;

	if (ring->rx_mini_pending)
		return -EINVAL;
	if (ring->tx_pending < NUPA_RING_ENTRIES_MIN || ring->rx_pending < NUPA_RING_ENTRIES_MIN ||
	    (ring->rx_jumbo_pending && ring->rx_jumbo_pending < NUPA_RING_ENTRIES_MIN)) {
		NL_SET_ERR_MSG(extack, "ring too small");
		return -EINVAL;
	}
	if (kernel->tcp_data_split == ETHTOOL_TCP_DATA_SPLIT_ENABLED &&
	    !(nupa->features & NUPA_FEAT_HDR_SPLIT)) {
		NL_SET_ERR_MSG(extack, "the switch does not split headers off");
		return -EOPNOTSUPP;
	}
	new.strict_split = kernel->tcp_data_split == ETHTOOL_TCP_DATA_SPLIT_ENABLED;
	if (!new.strict_split && nupa_device_memory_bound(nupa)) {
		NL_SET_ERR_MSG(extack, "device memory is bound to a receive queue");
		return -EBUSY;
	}
	/* the maxima, powers of two, were checked by the core */
	new.tx_entries = roundup_pow_of_two(ring->tx_pending);
	new.rx_entries = roundup_pow_of_two(ring->rx_pending);
	new.rx_long_entries = ring->rx_jumbo_pending ? roundup_pow_of_two(ring->rx_jumbo_pending) : 0;
	err = nupa_restart(nupa, nupa_rings_change, &new);
	if (err && nupa_restart(nupa, nupa_rings_change, &old))
		netdev_err(dev, "down: neither new nor old rings could be had\n");
	return err;
}

static void nupa_get_channels(struct net_device *dev, struct ethtool_channels *channels)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	channels->max_combined = nupa->queues_max;
	channels->combined_count = nupa->nr_queues;
	channels->max_other = 1;	/* vector 0 */
	channels->other_count = 1;
}

static void nupa_channels_change(struct nupa_dev *nupa, const void *arg)
{
	nupa->nr_queues = *(const u16 *)arg;
}

/* The core has checked the maximum and the RSS table. */
static int nupa_set_channels(struct net_device *dev, struct ethtool_channels *channels)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	u16 old = nupa->nr_queues, new = channels->combined_count;
	int err;

	if (!new || channels->other_count != 1 || nupa_steer_uses(nupa, new))
		return -EINVAL;
	err = nupa_restart(nupa, nupa_channels_change, &new);
	if (err && nupa_restart(nupa, nupa_channels_change, &old))
		netdev_err(dev, "down: neither new nor old channels could be had\n");
	if (!netif_running(dev))
		netif_set_real_num_queues(dev, nupa->nr_queues, nupa->nr_queues);
	return err;
}

/* rx-usecs: how long placed payload may wait for more of its message (nupa_cmd_rx_mode). */
static int nupa_get_coalesce(struct net_device *dev, struct ethtool_coalesce *coal,
			     struct kernel_ethtool_coalesce *kernel, struct netlink_ext_ack *extack)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	coal->rx_coalesce_usecs = nupa->rx_hold_us;
	return 0;
}

static int nupa_set_coalesce(struct net_device *dev, struct ethtool_coalesce *coal,
			     struct kernel_ethtool_coalesce *kernel, struct netlink_ext_ack *extack)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	u16 old = nupa->rx_hold_us;
	int err;

	if (coal->rx_coalesce_usecs && !(nupa->features & NUPA_FEAT_RX_HOLD)) {
		NL_SET_ERR_MSG(extack, "the switch completes at once");
		return -EOPNOTSUPP;
	}
	if (coal->rx_coalesce_usecs > NUPA_RX_HOLD_MAX_US) {
		NL_SET_ERR_MSG(extack, "longer than the switch waits");
		return -EINVAL;
	}
	WRITE_ONCE(nupa->rx_hold_us, coal->rx_coalesce_usecs);
	err = nupa->up ? nupa_mode_apply(nupa, dev->features) : 0;
	if (err)
		WRITE_ONCE(nupa->rx_hold_us, old);
	return err;
}

static u32 nupa_get_priv_flags(struct net_device *dev)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	return nupa->tx_watch ? BIT(NUPA_PRIV_TX_WATCH) : 0;
}

static void nupa_watch_change(struct nupa_dev *nupa, const void *arg)
{
	nupa->tx_watch = *(const bool *)arg;
}

/* The switch hears of it when a ring is made: all are made anew. */
static int nupa_set_priv_flags(struct net_device *dev, u32 flags)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	bool old = nupa->tx_watch, new = flags & BIT(NUPA_PRIV_TX_WATCH);
	int err;

	if (new == old)
		return 0;
	err = nupa_restart(nupa, nupa_watch_change, &new);
	if (err && nupa_restart(nupa, nupa_watch_change, &old))
		netdev_err(dev, "down: neither new nor old rings could be had\n");
	return err;
}

static u32 nupa_get_rxfh_size(struct net_device *dev)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	return nupa->features & NUPA_FEAT_RSS ? NUPA_RSS_TABLE_ENTRIES : 0;
}

static u32 nupa_get_rxfh_key_size(struct net_device *dev)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	return nupa->features & NUPA_FEAT_RSS ? NUPA_RSS_KEY_BYTES : 0;
}

const struct ethtool_ops nupa_ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_RX_USECS,
	.supported_ring_params = ETHTOOL_RING_USE_TCP_DATA_SPLIT | NUPA_RING_USE_HDS_THRS,
	NUPA_ETHTOOL_RTNL
	.get_drvinfo = nupa_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = nupa_get_link_ksettings,
	.get_ts_info = ethtool_op_get_ts_info,
	.get_ringparam = nupa_get_ringparam,
	.set_ringparam = nupa_set_ringparam,
	.get_channels = nupa_get_channels,
	.set_channels = nupa_set_channels,
	.get_sset_count = nupa_stats_count,
	.get_strings = nupa_stats_strings,
	.get_ethtool_stats = nupa_stats_get,
	.get_priv_flags = nupa_get_priv_flags,
	.set_priv_flags = nupa_set_priv_flags,
	.get_coalesce = nupa_get_coalesce,
	.set_coalesce = nupa_set_coalesce,
	.get_rxfh_indir_size = nupa_get_rxfh_size,
	.get_rxfh_key_size = nupa_get_rxfh_key_size,
	.get_rxfh = nupa_rxfh_get,
	.set_rxfh = nupa_rxfh_set,
	NUPA_ETHTOOL_RX_RINGS
	.get_rxnfc = nupa_rxnfc_get,
	.set_rxnfc = nupa_rxnfc_set,
};
