// SPDX-License-Identifier: GPL-2.0
/* The netdev: life cycle, features, addresses, modes. */
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/module.h>
#include <linux/tcp.h>
#include <net/gso.h>
#include "nupa.h"

static unsigned int nupa_gso_ipv4_max = NUPA_TSO_MAX_BYTES;
module_param_named(gso_ipv4_max, nupa_gso_ipv4_max, uint, 0444);
MODULE_PARM_DESC(gso_ipv4_max, "initial gso_ipv4_max_size in bytes: BIG TCP bursts over IPv4; 0: the kernel's default of 64 KiB");

static unsigned int nupa_gro_ipv4_max = GRO_MAX_SIZE;
module_param_named(gro_ipv4_max, nupa_gro_ipv4_max, uint, 0444);
MODULE_PARM_DESC(gro_ipv4_max, "initial gro_ipv4_max_size in bytes, of a switch that fills long buffers: received runs over IPv4; 0: the kernel's default of 64 KiB");

/* Bring the rings to life, here and in the switch. */
static int nupa_up(struct nupa_dev *nupa)
{
	int err;

	if (nupa_failed(nupa))
		return -EIO;
	err = netif_set_real_num_queues(nupa->netdev, nupa->nr_queues, nupa->nr_queues);
	if (err)
		return err;
	err = nupa_queues_alloc(nupa);
	if (err)
		return err;
	err = nupa_queues_create(nupa);
	if (err)
		goto destroy;
	err = nupa_queues_start(nupa);
	if (err)
		goto destroy;
	nupa_rss_spread(nupa);
	err = nupa_rss_apply(nupa) ?: nupa_steer_apply(nupa) ?:
	      nupa_mode_apply(nupa, nupa->netdev->features);
	if (err)
		goto stop;
	WRITE_ONCE(nupa->up, true);
	nupa_queues_kick(nupa);
	netif_tx_wake_all_queues(nupa->netdev);
	nupa_link_update(nupa);
	return 0;
stop:
	nupa_queues_stop(nupa);
destroy:
	nupa->quiet = !nupa_queues_destroy(nupa) || !nupa_reset(nupa);
	nupa_queues_free(nupa);
	return err;
}

static void nupa_down(struct nupa_dev *nupa)
{
	if (!nupa->up)
		return;
	WRITE_ONCE(nupa->up, false);
	smp_mb();		/* pairs with nupa_link_update() */
	netif_carrier_off(nupa->netdev);
	nupa_queues_stop(nupa);
	nupa->quiet = !nupa_queues_destroy(nupa) || !nupa_reset(nupa);
	nupa_queues_free(nupa);
}

static int nupa_open(struct net_device *dev)
{
	return nupa_up(netdev_priv(dev));
}

static int nupa_stop(struct net_device *dev)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	nupa_down(nupa);
	return 0;
}

int nupa_restart(struct nupa_dev *nupa, void (*change)(struct nupa_dev *nupa, const void *arg),
		 const void *arg)
{
	netdev_assert_locked(nupa->netdev);
	nupa_down(nupa);
	change(nupa, arg);
	return netif_running(nupa->netdev) ? nupa_up(nupa) : 0;
}

/*
 * A failed port takes nothing from its rings any more, and senders wait for
 * what they gave it: reset it and give that back.
 */
void nupa_netdev_halt(struct nupa_dev *nupa)
{
	bool running = nupa->up;

	WRITE_ONCE(nupa->up, false);
	if (running)
		nupa_queues_stop(nupa);
	nupa->quiet = !nupa_reset(nupa);
	if (running)
		nupa_queues_free(nupa);
}

/* 0: the port works; the interface is up again if it was. */
int nupa_netdev_recover(struct nupa_dev *nupa)
{
	int err = nupa->quiet ? nupa_enable(nupa) : -EIO;

	if (err) {
		netif_device_detach(nupa->netdev);
		return err;
	}
	nupa_hbm_enabled(nupa);		/* before a queue names what is behind a window */
	if (netif_running(nupa->netdev) && nupa_up(nupa))
		netif_close(nupa->netdev);
	return nupa_failed(nupa) ? -EIO : 0;
}

static u32 nupa_mode_flags(struct net_device *dev, netdev_features_t features)
{
	const struct nupa_dev *nupa = netdev_priv(dev);
	u32 flags = 0;

	/* no address filter beyond our own: more addresses, more modes */
	if (dev->flags & IFF_PROMISC || !netdev_uc_empty(dev))
		flags |= NUPA_RX_MODE_PROMISC;
	if (dev->flags & IFF_ALLMULTI || !netdev_mc_empty(dev))
		flags |= NUPA_RX_MODE_ALLMULTI;
	if (features & NETIF_F_GRO_HW)
		flags |= NUPA_RX_MODE_GRO;
	/* nobody but the switch can sum device memory */
	if (features & NETIF_F_RXCSUM || nupa->strict_split)
		flags |= NUPA_RX_MODE_CSUM;
	return flags;
}

/* As GRO reads it, what is merged stays below; the most that can be said is no bound. */
static u32 nupa_run4_max(const struct nupa_dev *nupa)
{
	if (nupa->run4_told >= GRO_MAX_SIZE)
		return NUPA_RX_RUN_MAX_BYTES;
	return max(nupa->run4_told, 2U) - 1;
}

int nupa_mode_apply(struct nupa_dev *nupa, netdev_features_t features)
{
	struct nupa_admin_cmd cmd = { .op = cpu_to_le16(NUPA_ADMIN_RX_MODE) };
	struct net_device *dev = nupa->netdev;
	int err;

	mutex_lock(&nupa->mode_lock);
	WRITE_ONCE(nupa->run4_told, READ_ONCE(dev->gro_ipv4_max_size));
	netif_addr_lock_bh(dev);
	cmd.rx_mode.flags = cpu_to_le32(nupa_mode_flags(dev, features));
	cmd.rx_mode.mtu = cpu_to_le32(READ_ONCE(dev->mtu));
	ether_addr_copy(cmd.rx_mode.mac, dev->dev_addr);
	if (nupa->features & NUPA_FEAT_RX_HOLD)
		cmd.rx_mode.hold_us = cpu_to_le16(READ_ONCE(nupa->rx_hold_us));
	netif_addr_unlock_bh(dev);
	if (nupa->features & NUPA_FEAT_RX_LONG)
		cmd.rx_mode.run4_max_bytes = cpu_to_le32(nupa_run4_max(nupa));
	err = nupa_admin_submit(nupa, &cmd, NULL);
	mutex_unlock(&nupa->mode_lock);
	return err;
}

static void nupa_mode_work(struct work_struct *work)
{
	struct nupa_dev *nupa = container_of(work, struct nupa_dev, mode_work);
	int err = nupa_mode_apply(nupa, nupa->netdev->features);

	if (err && !nupa_failed(nupa))
		netdev_err(nupa->netdev, "receive mode was refused (%d)\n", err);
}

/* May be called under a spin lock. */
static NUPA_RX_MODE_TYPE nupa_set_rx_mode(NUPA_RX_MODE_PARAMS)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	schedule_work(&nupa->mode_work);
	return NUPA_RX_MODE_OK;
}

static int nupa_set_mac(struct net_device *dev, void *addr)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	int err = eth_prepare_mac_addr_change(dev, addr);
	u8 old[ETH_ALEN];

	if (err)
		return err;
	ether_addr_copy(old, dev->dev_addr);
	eth_commit_mac_addr_change(dev, addr);
	if (!nupa->up)
		return 0;
	err = nupa_mode_apply(nupa, dev->features);
	if (err)	/* -EEXIST: another port of the switch has it */
		eth_hw_addr_set(dev, old);
	return err;
}

static int nupa_change_mtu(struct net_device *dev, int mtu)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	int old = dev->mtu, err;

	WRITE_ONCE(dev->mtu, mtu);
	if (!nupa->up)
		return 0;
	err = nupa_mode_apply(nupa, dev->features);
	if (err)
		WRITE_ONCE(dev->mtu, old);
	return err;
}

static netdev_features_t nupa_fix_features(struct net_device *dev, netdev_features_t features)
{
	/* the switch merges only what it has verified */
	if (!(features & NETIF_F_RXCSUM))
		features &= ~NETIF_F_GRO_HW;
	return features;
}

static int nupa_set_features(struct net_device *dev, netdev_features_t features)
{
	netdev_features_t changed = dev->features ^ features;
	struct nupa_dev *nupa = netdev_priv(dev);

	if (changed & ~features & NETIF_F_NTUPLE)
		nupa_steer_purge(nupa);
	if (!nupa->up || !(changed & (NETIF_F_GRO_HW | NETIF_F_RXCSUM)))
		return 0;
	return nupa_mode_apply(nupa, features);
}

static unsigned int nupa_gso_tcp_bytes(const struct sk_buff *skb, unsigned int offset)
{
	const struct tcphdr *th = (const struct tcphdr *)(skb->data + offset);

	if (offset + sizeof(*th) > skb_headlen(skb))
		return NUPA_TX_HEADER_MAX_BYTES + 1;	/* scattered header: let the stack cut it */
	return __tcp_hdrlen(th);
}

/* Headers that do not fit what the switch parses are cut and summed here. */
static netdev_features_t nupa_features_check(struct sk_buff *skb, struct net_device *dev,
					     netdev_features_t features)
{
	unsigned int headers;

	features = vlan_features_check(skb, features);
	if (skb->ip_summed != CHECKSUM_PARTIAL)
		return features;
	headers = skb_checksum_start_offset(skb);
	if (skb_is_gso_tcp(skb)) {
		headers += nupa_gso_tcp_bytes(skb, headers);
		/* IPv6 above 64 KiB has a jumbogram header that no segment may keep */
		if (skb_is_gso_v6(skb) && skb->len > GSO_LEGACY_MAX_SIZE)
			features &= ~NETIF_F_GSO_MASK;
	} else {
		headers += skb->csum_offset + sizeof(__sum16);
	}
	if (headers > NUPA_TX_HEADER_MAX_BYTES)
		features &= ~(NETIF_F_CSUM_MASK | NETIF_F_GSO_MASK);
	return features;
}

static void nupa_tx_timeout(struct net_device *dev, unsigned int index)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	struct nupa_queue *q = &nupa->queues[index];

	if (nupa_tx_stuck(q)) {
		nupa_fail(nupa, "transmit timed out");
		return;
	}
	netdev_warn(dev, "queue %u: completions without an interrupt\n", index);
	napi_schedule(&q->napi);
}

static const struct net_device_ops nupa_netdev_ops = {
	.ndo_open = nupa_open,
	.ndo_stop = nupa_stop,
	.ndo_start_xmit = nupa_tx_xmit,
	.ndo_features_check = nupa_features_check,
	.ndo_set_rx_mode_async = nupa_set_rx_mode,
	.ndo_set_mac_address = nupa_set_mac,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_change_mtu = nupa_change_mtu,
	.ndo_fix_features = nupa_fix_features,
	.ndo_set_features = nupa_set_features,
	.ndo_tx_timeout = nupa_tx_timeout,
	.ndo_get_stats64 = nupa_stats64,
};

static netdev_features_t nupa_hw_features(u32 has)
{
	netdev_features_t features = NETIF_F_SG | NETIF_F_HIGHDMA;

	if (has & NUPA_FEAT_CSUM)
		features |= NETIF_F_HW_CSUM | NETIF_F_RXCSUM;
	if (has & NUPA_FEAT_CSUM && has & NUPA_FEAT_TSO4)
		features |= NETIF_F_TSO | NETIF_F_TSO_ECN;
	if (has & NUPA_FEAT_CSUM && has & NUPA_FEAT_TSO6)
		features |= NETIF_F_TSO6;
	if (has & NUPA_FEAT_CSUM && has & NUPA_FEAT_GRO_HW)
		features |= NETIF_F_GRO_HW;
	if (has & NUPA_FEAT_RSS)
		features |= NETIF_F_RXHASH;
	if (has & NUPA_FEAT_STEER)
		features |= NETIF_F_NTUPLE;
	return features;
}

static void nupa_netdev_features(struct nupa_dev *nupa)
{
	struct net_device *dev = nupa->netdev;
	unsigned int burst = GSO_LEGACY_MAX_SIZE;

	dev->hw_features = nupa_hw_features(nupa->features);
	dev->features = dev->hw_features;
	dev->vlan_features = dev->hw_features & ~NETIF_F_NTUPLE;
	if (nupa->features & NUPA_FEAT_BIG_TCP)
		burst = NUPA_TSO_MAX_BYTES - NUPA_TX_HEADER_MAX_BYTES;
	netif_set_tso_max_size(dev, burst);
	/*
	 * That was no more than GSO_MAX_SIZE, 65535 segments of the smallest MSS.  TCP bounds
	 * segments itself, and a message of 1 MiB in one burst is a third of the work of it in
	 * two and a rest of 1 KiB.
	 */
	dev->tso_max_size = burst;
	if (nupa_gso_ipv4_max)
		WRITE_ONCE(dev->gso_ipv4_max_size,
			   clamp_t(unsigned int, nupa_gso_ipv4_max, GSO_LEGACY_MAX_SIZE, burst));
	if (nupa->features & NUPA_FEAT_RX_LONG && nupa_gro_ipv4_max)
		WRITE_ONCE(dev->gro_ipv4_max_size,
			   clamp_t(unsigned int, nupa_gro_ipv4_max, GRO_LEGACY_MAX_SIZE,
				   GRO_MAX_SIZE));
}

/* All queues together have a part of the memory; several senders at once need some MiB before NAPI has a turn. */
static u32 nupa_rx_long_default(const struct nupa_dev *nupa)
{
	u64 bytes = ((u64)totalram_pages() << PAGE_SHIFT) / NUPA_RX_LONG_RAM_SHARE;
	u64 entries = div_u64(bytes, NUPA_RX_LONG_BUF_BYTES * nupa->nr_queues);

	return rounddown_pow_of_two(clamp_t(u64, entries, NUPA_RX_LONG_ENTRIES_MIN,
					    NUPA_RX_LONG_ENTRIES_USUAL));
}

static void nupa_netdev_address(struct nupa_dev *nupa, const struct nupa_regs *regs)
{
	u8 mac[ETH_ALEN];

	memcpy(mac, regs->mac, ETH_ALEN);
	if (is_valid_ether_addr(mac))
		eth_hw_addr_set(nupa->netdev, mac);
	else
		eth_hw_addr_random(nupa->netdev);
}

struct net_device *nupa_netdev_alloc(struct pci_dev *pdev, const struct nupa_regs *regs,
				     u16 queues_max)
{
	struct net_device *dev;
	struct nupa_dev *nupa;

	queues_max = clamp_t(u16, le16_to_cpu(READ_ONCE(regs->queue_pairs)), 1, queues_max);
	if (!(nupa_get(&regs->features) & NUPA_FEAT_RSS))
		queues_max = 1;
	dev = alloc_etherdev_mqs(sizeof(*nupa), queues_max, queues_max);
	if (!dev)
		return NULL;
	SET_NETDEV_DEV(dev, &pdev->dev);
	strscpy(dev->name, "nupa%d", sizeof(dev->name));
	nupa = netdev_priv(dev);
	nupa->pdev = pdev;
	nupa->netdev = dev;
	nupa->features = nupa_get(&regs->features);
	nupa->tx_watch = true;
	nupa->queues_max = queues_max;
	nupa->nr_queues = min_t(u16, queues_max, num_online_cpus());
	nupa->tx_entries = NUPA_TX_ENTRIES_DEFAULT;
	nupa->rx_entries = NUPA_RX_ENTRIES_DEFAULT;
	nupa->rx_buf_bytes = NUPA_RX_BUF_BYTES_DEFAULT;
	nupa->rx_long_entries = nupa->features & NUPA_FEAT_RX_LONG ? nupa_rx_long_default(nupa) : 0;
	nupa->rx_hold_us = nupa->features & NUPA_FEAT_RX_HOLD ? NUPA_RX_HOLD_US_DEFAULT : 0;
	nupa->state = BIT(NUPA_S_FAILED);	/* until enabled */
	mutex_init(&nupa->mode_lock);
	mutex_init(&nupa->stats_lock);
	mutex_init(&nupa->qp_lock);
	INIT_WORK(&nupa->mode_work, nupa_mode_work);
	xa_init_flags(&nupa->rules, XA_FLAGS_ALLOC);
	xa_init_flags(&nupa->cqs, XA_FLAGS_LOCK_IRQ);

	dev->netdev_ops = &nupa_netdev_ops;
	dev->stat_ops = &nupa_stat_ops;
	nupa_queue_mgmt_init(dev);
	nupa_offer_device_memory_tx(dev);
	dev->ethtool_ops = &nupa_ethtool_ops;
	dev->priv_flags |= IFF_LIVE_ADDR_CHANGE;
	dev->watchdog_timeo = msecs_to_jiffies(NUPA_WATCHDOG_MS);
	dev->min_mtu = NUPA_MTU_MIN;
	dev->max_mtu = clamp_t(u32, nupa_get(&regs->mtu_max), NUPA_MTU_MIN, NUPA_MTU_MAX);
	dev->mtu = min_t(u32, ETH_DATA_LEN, dev->max_mtu);
	nupa_netdev_address(nupa, regs);
	nupa_netdev_features(nupa);
	netif_carrier_off(dev);
	return dev;
}

int nupa_netdev_init(struct nupa_dev *nupa)
{
	int err;

	nupa_rss_init(nupa);
	err = nupa_stats_alloc(nupa);
	if (err)
		return err;
	err = nupa_queues_init(nupa);
	if (err)
		goto free_stats;
	err = netif_set_real_num_queues(nupa->netdev, nupa->nr_queues, nupa->nr_queues);
	if (err)
		goto exit_queues;
	err = register_netdev(nupa->netdev);
	if (err)
		goto exit_queues;
	return 0;
exit_queues:
	nupa_queues_exit(nupa);
free_stats:
	nupa_stats_free(nupa);
	return err;
}

void nupa_netdev_exit(struct nupa_dev *nupa)
{
	unregister_netdev(nupa->netdev);
	cancel_work_sync(&nupa->mode_work);
	nupa_steer_purge(nupa);
	xa_destroy(&nupa->rules);
	xa_destroy(&nupa->cqs);
	nupa_queues_exit(nupa);
	nupa_stats_free(nupa);
}
