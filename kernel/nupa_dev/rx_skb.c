// SPDX-License-Identifier: GPL-2.0
/* From a receive completion to an skb. */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <net/ip6_checksum.h>
#include <net/page_pool/helpers.h>
#include <net/tcp.h>
#include "nupa.h"

#if !IS_ENABLED(CONFIG_SKB_DECRYPTED)
#error "placed payload is told from delivered payload by skb->decrypted"
#endif

enum {
	NUPA_PLACED_MAX_BYTES = MAX_SKB_FRAGS * (PAGE_SIZE << NUPA_ZERO_ORDER_MIN),
};

static_assert(NUPA_RX_BUFS_PER_PACKET_MAX <= MAX_SKB_FRAGS);
static_assert((u32)NUPA_PLACED_MAX_BYTES >= (u32)NUPA_PLACED_RUN_MAX_BYTES);

static bool nupa_rx_check_payload(const struct nupa_rxq *rx, const struct nupa_rx_desc *desc)
{
	if (desc->flags & NUPA_RX_F_PLACED)
		return desc->flags & NUPA_RX_F_QP && !desc->bufs && !desc->long_bufs &&
		       desc->payload_bytes && desc->payload_bytes <= NUPA_PLACED_MAX_BYTES;
	return nupa_rx_bufs_right(desc->payload_bytes, desc->long_bufs, rx->longs.buf_bytes,
				  desc->bufs, rx->fill.buf_bytes);
}

static bool nupa_rx_check_merge(const struct nupa_rx_desc *desc)
{
	u16 family = desc->flags & (NUPA_RX_F_TCP4 | NUPA_RX_F_TCP6);

	if (desc->gso_segs <= 1)
		return desc->payload_bytes <= NUPA_MTU_MAX;
	if (!desc->gso_size)
		return false;
	return (family == NUPA_RX_F_TCP4 || family == NUPA_RX_F_TCP6) && desc->payload_bytes &&
	       desc->gso_segs == DIV_ROUND_UP(desc->payload_bytes, desc->gso_size);
}

bool nupa_rx_check(struct nupa_queue *q, const struct nupa_rx_desc *desc, bool *fatal)
{
	struct nupa_rxq *rx = &q->rx;

	if (desc->bufs > nupa_fill_waiting(&rx->fill) ||
	    desc->long_bufs > nupa_fill_waiting(&rx->longs)) {
		nupa_rx_count(q, NUPA_RXS_invalid, 1);
		*fatal = true;
		return false;
	}
	if (desc->header_bytes >= ETH_HLEN && desc->header_bytes <= NUPA_RX_SLOT_BYTES &&
	    nupa_rx_check_payload(rx, desc) && nupa_rx_check_merge(desc))
		return true;
	nupa_rx_count(q, NUPA_RXS_invalid, 1);
	nupa_rx_drop_bufs(q, desc);
	return false;
}

/* What of @left bytes comes after the next @bufs buffers of @f, which the skb gets. */
static u32 nupa_rx_add_bufs(struct sk_buff *skb, struct nupa_fill *f, u32 bufs, u32 left)
{
	for (; bufs; bufs--) {
		netmem_ref mem = nupa_fill_take(f);
		u32 bytes = min(left, f->buf_bytes);

		page_pool_dma_sync_netmem_for_cpu(f->pool, mem, 0, bytes);
		skb_add_rx_frag_netmem(skb, skb_shinfo(skb)->nr_frags, mem, 0, bytes, f->mem_bytes);
		left -= bytes;
	}
	return left;
}

static void nupa_rx_add_delivered(struct nupa_queue *q, struct sk_buff *skb,
				  const struct nupa_rx_desc *desc)
{
	u32 left = desc->payload_bytes;

	if (desc->long_bufs) {
		left = nupa_rx_add_bufs(skb, &q->rx.longs, desc->long_bufs, left);
		nupa_rx_count(q, NUPA_RXS_long_buffers, desc->long_bufs);
	}
	nupa_rx_add_bufs(skb, &q->rx.fill, desc->bufs, left);
	skb_mark_for_recycle(skb);
}

/*
 * The payload is in the application's buffer already.  truesize counts it in
 * full: TCP's window arithmetic needs truesize > len.
 */
static void nupa_rx_add_placed(struct nupa_queue *q, struct sk_buff *skb,
			       const struct nupa_rx_desc *desc)
{
	struct page *page = q->nupa->zero_page;
	u32 left = desc->payload_bytes;
	int i;

	for (i = 0; left; i++) {
		u32 bytes = min(left, q->nupa->zero_bytes);

		get_page(page);
		skb_add_rx_frag(skb, i, page, 0, bytes, bytes);
		left -= bytes;
	}
	skb->decrypted = 1;
	/* its reader knows; for all others there is nothing to read */
	skb->unreadable = !!(desc->flags & NUPA_RX_F_STREAM);
}

static void nupa_rx_set_csum(struct nupa_queue *q, struct sk_buff *skb,
			     const struct nupa_rx_desc *desc)
{
	if (desc->flags & NUPA_RX_F_CSUM_BAD)
		nupa_rx_count(q, NUPA_RXS_csum_bad, 1);
	if (desc->flags & NUPA_RX_F_PLACED ||	/* verified before the first byte was placed */
	    (desc->flags & NUPA_RX_F_CSUM_OK && q->nupa->netdev->features & NETIF_F_RXCSUM))
		skb->ip_summed = CHECKSUM_UNNECESSARY;
}

/*
 * A merged packet's checksum field means nothing.  Make it the pseudo header
 * sum of one that was never sent, so that it may be forwarded; false where the
 * headers are not the plain ones (the stack then takes it as verified).
 */
static bool nupa_rx_partial_csum(struct sk_buff *skb, bool v6)
{
	unsigned int net_bytes;
	struct tcphdr *th;

	if (skb->protocol != htons(v6 ? ETH_P_IPV6 : ETH_P_IP))	/* a VLAN tag */
		return false;
	net_bytes = v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	if (skb_headlen(skb) < net_bytes + sizeof(*th))
		return false;
	if (v6 ? ipv6_hdr(skb)->nexthdr != IPPROTO_TCP :
		 ip_hdr(skb)->protocol != IPPROTO_TCP || ip_hdrlen(skb) != net_bytes)
		return false;
	skb_set_transport_header(skb, net_bytes);
	th = tcp_hdr(skb);
	if (v6)
		th->check = ~tcp_v6_check(skb->len - net_bytes, &ipv6_hdr(skb)->saddr,
					  &ipv6_hdr(skb)->daddr, 0);
	else
		th->check = ~tcp_v4_check(skb->len - net_bytes, ip_hdr(skb)->saddr,
					  ip_hdr(skb)->daddr, 0);
	skb->csum_start = (unsigned char *)th - skb->head;
	skb->csum_offset = offsetof(struct tcphdr, check);
	skb->ip_summed = CHECKSUM_PARTIAL;
	return true;
}

static void nupa_rx_set_merged(struct nupa_queue *q, struct sk_buff *skb,
			       const struct nupa_rx_desc *desc)
{
	struct skb_shared_info *info = skb_shinfo(skb);
	bool v6 = desc->flags & NUPA_RX_F_TCP6;
	bool qp = desc->flags & NUPA_RX_F_QP && !(desc->flags & NUPA_RX_F_STREAM);

	skb_reset_network_header(skb);
	info->gso_size = desc->gso_size;
	info->gso_segs = desc->gso_segs;
	info->gso_type = v6 ? SKB_GSO_TCPV6 : SKB_GSO_TCPV4;
	/* tcp_qp edits the header of its packets and wants no checksum in flight */
	if (qp || !skb_frags_readable(skb) || !nupa_rx_partial_csum(skb, v6))
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	nupa_rx_count(q, NUPA_RXS_merged_packets, 1);
}

static void nupa_rx_count_packet(struct nupa_queue *q, const struct nupa_rx_desc *desc)
{
	struct nupa_rx_stats *stats = &q->rx_stats;

	u64_stats_update_begin(&stats->syncp);
	u64_stats_add(&stats->v[NUPA_RXS_packets], desc->gso_segs ?: 1);
	u64_stats_add(&stats->v[NUPA_RXS_bytes], desc->header_bytes + desc->payload_bytes);
	if (desc->flags & NUPA_RX_F_QP)
		u64_stats_inc(&stats->v[NUPA_RXS_qp_packets]);
	if (desc->flags & NUPA_RX_F_PLACED) {
		u64_stats_inc(&stats->v[NUPA_RXS_placed_packets]);
		u64_stats_add(&stats->v[NUPA_RXS_placed_bytes], desc->payload_bytes);
	}
	u64_stats_update_end(&stats->syncp);
}

struct sk_buff *nupa_rx_skb(struct nupa_queue *q, const struct nupa_rx_desc *desc, const u8 *header)
{
	struct sk_buff *skb = napi_alloc_skb(&q->napi, desc->header_bytes);

	if (unlikely(!skb)) {
		nupa_rx_drop_bufs(q, desc);
		nupa_rx_count(q, NUPA_RXS_drops, 1);
		return NULL;
	}
	skb_put_data(skb, header, desc->header_bytes);
	if (desc->flags & NUPA_RX_F_PLACED)
		nupa_rx_add_placed(q, skb, desc);
	else if (desc->payload_bytes)
		nupa_rx_add_delivered(q, skb, desc);
	nupa_rx_count_packet(q, desc);
	skb->protocol = eth_type_trans(skb, q->nupa->netdev);
	if (desc->joined)
		nupa_rx_set_joined(skb, desc);
	skb_record_rx_queue(skb, q->index);
	if (q->nupa->netdev->features & NETIF_F_RXHASH)
		skb_set_hash(skb, desc->hash, desc->flags & NUPA_RX_F_HASH_L4 ? PKT_HASH_TYPE_L4 :
									       PKT_HASH_TYPE_L3);
	nupa_rx_set_csum(q, skb, desc);
	if (unlikely(q->rx.strict) && !nupa_rx_strict(q, skb, desc)) {
		kfree_skb(skb);
		return NULL;
	}
	if (desc->gso_segs > 1)
		nupa_rx_set_merged(q, skb, desc);
	return skb;
}
