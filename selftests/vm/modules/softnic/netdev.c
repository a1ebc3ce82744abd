// SPDX-License-Identifier: GPL-2.0
/* The network interface: frames out, frames in, statistics. */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include "softnic.h"

#if !IS_ENABLED(CONFIG_SKB_DECRYPTED)
#error "placed payload is told from delivered payload by skb->decrypted"
#endif

/* ---- out ---- */

/* As it leaves: one piece, whatever its sender does to the pages later, with its checksum. */
static struct sk_buff *snic_frame_of(struct sk_buff *skb, struct net_device *to)
{
	struct sk_buff *frame = netdev_alloc_skb_ip_align(to, skb->len);
	u32 at, bytes = skb->len;

	if (!frame)
		return NULL;
	if (skb_copy_bits(skb, 0, skb_put(frame, bytes), bytes)) {
		kfree_skb(frame);
		return NULL;
	}
	if (skb->ip_summed == CHECKSUM_PARTIAL) {
		at = skb_checksum_start_offset(skb);
		*(__sum16 *)(frame->data + at + skb->csum_offset) =
			csum_fold(csum_partial(frame->data + at, bytes - at, 0)) ?: CSUM_MANGLED_0;
	}
	return frame;
}

static netdev_tx_t snic_xmit(struct sk_buff *skb, struct net_device *netdev)
{
	struct snic_nic *nic = netdev_priv(netdev);
	struct sk_buff *frame = snic_frame_of(skb, nic->peer->netdev);
	struct snic_packet packet;

	skb_tx_timestamp(skb);
	if (!frame) {
		dev_core_stats_tx_dropped_inc(netdev);
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	dev_consume_skb_any(skb);
	if (snic_packet_parse(frame, &packet)) {
		spin_lock(&nic->lock);
		snic_watch(nic, &packet);
		spin_unlock(&nic->lock);
	}
	snic_count(nic, SNIC_S_tx_frames, 1);
	dev_sw_netstats_tx_add(netdev, 1, frame->len);
	snic_wire_carry(nic->peer, frame);
	return NETDEV_TX_OK;
}

/* ---- in ---- */

/* Its headers, and the zero page as often as its payload is long. */
static struct sk_buff *snic_placed(struct snic_nic *nic, const struct sk_buff *frame,
				   const struct snic_packet *packet)
{
	struct sk_buff *skb = napi_alloc_skb(&nic->napi, packet->header_bytes);
	u32 left = packet->bytes;

	if (!skb)
		return NULL;
	skb_put_data(skb, frame->data, packet->header_bytes);
	while (left) {
		u32 bytes = min_t(u32, left, PAGE_SIZE);

		get_page(snic_zero_page);
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, snic_zero_page, 0, bytes, bytes);
		left -= bytes;
	}
	skb->decrypted = 1;
	return skb;
}

static void snic_receive(struct snic_nic *nic, struct sk_buff *frame)
{
	enum snic_stat verdict = SNIC_S_deliver_no_qp;
	struct snic_packet packet = {};
	struct sk_buff *skb = frame;

	if (snic_packet_parse(frame, &packet)) {
		spin_lock(&nic->lock);
		verdict = snic_place(nic, &packet);
		spin_unlock(&nic->lock);
	}
	snic_count(nic, verdict, 1);
	snic_count(nic, SNIC_S_rx_frames, 1);
	dev_sw_netstats_rx_add(nic->netdev, frame->len);
	if (verdict == SNIC_S_drop_overtaken) {
		kfree_skb(frame);
		return;
	}
	if (verdict == SNIC_S_placed || verdict == SNIC_S_placed_before) {
		skb = snic_placed(nic, frame, &packet);
		consume_skb(frame);
		if (!skb) {		/* it comes again, is delivered then, and copied */
			snic_count(nic, SNIC_S_rx_no_memory, 1);
			return;
		}
	}
	skb->protocol = eth_type_trans(skb, nic->netdev);
	skb->ip_summed = packet.checksum_good ? CHECKSUM_UNNECESSARY : CHECKSUM_NONE;
	netif_receive_skb(skb);
}

static int snic_poll(struct napi_struct *napi, int budget)
{
	struct snic_nic *nic = container_of(napi, struct snic_nic, napi);
	struct sk_buff *frame;
	int done;

	for (done = 0; done < budget; done++) {
		frame = snic_wire_take(nic);
		if (!frame) {
			napi_complete_done(napi, done);
			break;
		}
		snic_receive(nic, frame);
	}
	return done;
}

/* ---- the interface ---- */

/* Under rtnl: there is a link when both ends are up. */
static void snic_carrier(struct snic_nic *nic, bool on)
{
	struct net_device *ends[] = { nic->netdev, nic->peer->netdev };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ends); i++)
		if (on)
			netif_carrier_on(ends[i]);
		else
			netif_carrier_off(ends[i]);
}

static int snic_open(struct net_device *netdev)
{
	struct snic_nic *nic = netdev_priv(netdev);

	napi_enable(&nic->napi);
	snic_wire_open(nic, true);
	snic_carrier(nic, netif_running(nic->peer->netdev));
	return 0;
}

/* Contexts stay: what passes while the interface is down passes nobody. */
static int snic_stop(struct net_device *netdev)
{
	struct snic_nic *nic = netdev_priv(netdev);

	snic_carrier(nic, false);
	snic_wire_open(nic, false);
	napi_disable(&nic->napi);
	return 0;
}

static const struct net_device_ops snic_netdev_ops = {
	.ndo_open = snic_open,
	.ndo_stop = snic_stop,
	.ndo_start_xmit = snic_xmit,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

#define SNIC_STAT_NAME(name) #name,
static const char snic_stat_names[][ETH_GSTRING_LEN] = { SNIC_STATS(SNIC_STAT_NAME) };
#undef SNIC_STAT_NAME

static int snic_stat_count(struct net_device *netdev, int set)
{
	return set == ETH_SS_STATS ? SNIC_S_COUNT : -EOPNOTSUPP;
}

static void snic_stat_strings(struct net_device *netdev, u32 set, u8 *data)
{
	if (set == ETH_SS_STATS)
		memcpy(data, snic_stat_names, sizeof(snic_stat_names));
}

static void snic_stat_values(struct net_device *netdev, struct ethtool_stats *stats, u64 *data)
{
	struct snic_nic *nic = netdev_priv(netdev);
	u32 i;

	for (i = 0; i < SNIC_S_COUNT; i++)
		data[i] = atomic64_read(&nic->stats[i]);
}

static const struct ethtool_ops snic_ethtool_ops = {
	.get_link = ethtool_op_get_link,
	.get_sset_count = snic_stat_count,
	.get_strings = snic_stat_strings,
	.get_ethtool_stats = snic_stat_values,
};

static void snic_setup(struct net_device *netdev)
{
	ether_setup(netdev);
	netdev->netdev_ops = &snic_netdev_ops;
	netdev->ethtool_ops = &snic_ethtool_ops;
	netdev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	netdev->max_mtu = 9000;
	/* pages as they come and their checksum; cut by the kernel */
	netdev->features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_HIGHDMA;
	netdev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM;
	netdev->features |= NETIF_F_RXCSUM;
	eth_hw_addr_random(netdev);
}

struct net_device *snic_netdev_create(u32 number)
{
	struct net_device *netdev;
	struct snic_nic *nic;
	u32 i;

	netdev = alloc_netdev(sizeof(*nic), "", NET_NAME_ENUM, snic_setup);
	if (!netdev)
		return NULL;
	snprintf(netdev->name, sizeof(netdev->name), "soft%u", number);
	nic = netdev_priv(netdev);
	nic->netdev = netdev;
	skb_queue_head_init(&nic->queue);
	spin_lock_init(&nic->lock);
	xa_init(&nic->mrs);
	xa_init(&nic->qps);
	for (i = 0; i < SNIC_FLOW_BUCKETS; i++)
		INIT_HLIST_HEAD(&nic->flows[i]);
	netif_napi_add(netdev, &nic->napi, snic_poll);
	netif_carrier_off(netdev);
	return netdev;
}
