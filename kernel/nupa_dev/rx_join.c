// SPDX-License-Identifier: GPL-2.0
/*
 * Messages that the switch has completed, in one skb.  Who waited for them has them:
 * what TCP has to hear of is that their bytes came, and what the last one acknowledges.
 * Nobody reads their options any more, so several may share one header.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/unaligned.h>
#include <net/tcp.h>
#include "nupa.h"

enum {
	NUPA_RX_JOIN_FLAGS = NUPA_RX_F_PLACED | NUPA_RX_F_QP | NUPA_RX_F_COMPLETED |
			     NUPA_RX_F_TCP4 | NUPA_RX_F_TCP6 | NUPA_RX_F_STREAM |
			     NUPA_RX_F_CSUM_OK | NUPA_RX_F_CSUM_BAD,
	NUPA_RX_JOIN_SAME = NUPA_RX_F_PLACED | NUPA_RX_F_QP | NUPA_RX_F_COMPLETED |
			    NUPA_RX_F_CSUM_OK,
	NUPA_RX_JOIN_MAX_BYTES = 1 << 15,	/* more would not cost less; and IP can say it */
};

static u32 nupa_rx_ip_bytes(const struct nupa_rx_desc *desc)
{
	return desc->flags & NUPA_RX_F_TCP6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

/* Is nothing said beside data and acknowledgement, and are there no options of IP's? */
static bool nupa_rx_plain(const struct nupa_rx_desc *desc, const u8 *header)
{
	u16 flags = desc->flags & NUPA_RX_JOIN_FLAGS;
	const u8 *ip = header + ETH_HLEN;
	u32 at = ETH_HLEN + nupa_rx_ip_bytes(desc);
	bool v6 = flags & NUPA_RX_F_TCP6;
	u8 says;

	if (flags != (NUPA_RX_JOIN_SAME | (v6 ? NUPA_RX_F_TCP6 : NUPA_RX_F_TCP4)) ||
	    desc->header_bytes < at + sizeof(struct tcphdr) ||
	    desc->header_bytes > NUPA_RX_SLOT_BYTES)
		return false;
	if (get_unaligned_be16(header + offsetof(struct ethhdr, h_proto)) != (v6 ? ETH_P_IPV6 : ETH_P_IP))
		return false;
	if (v6 ? ip[offsetof(struct ipv6hdr, nexthdr)] != IPPROTO_TCP :
		 ip[0] != 0x45 || ip[offsetof(struct iphdr, protocol)] != IPPROTO_TCP)
		return false;
	says = header[at + offsetof(struct tcphdr, window) - 1];
	return (says & ~TCPHDR_PSH) == TCPHDR_ACK;
}

/* Version, and what the network says by ECN. */
static u16 nupa_rx_ip_begin(const u8 *header)
{
	return get_unaligned_be16(header + ETH_HLEN);
}

bool nupa_rx_join(struct nupa_rx_desc *desc, const u8 *header, const struct nupa_rx_desc *next,
		  const u8 *next_header)
{
	u32 at = ETH_HLEN + nupa_rx_ip_bytes(desc), bytes = desc->payload_bytes + next->payload_bytes;
	u32 seq, ack_at = at + offsetof(struct tcphdr, ack_seq);

	/* what was joined was looked at as @next */
	if (!(desc->joined || nupa_rx_plain(desc, header)) || !nupa_rx_plain(next, next_header) ||
	    next->qpn != desc->qpn || (next->flags ^ desc->flags) & NUPA_RX_F_TCP6 ||
	    next->bufs || next->long_bufs || !next->payload_bytes ||
	    next->payload_bytes > NUPA_RX_JOIN_MAX_BYTES || bytes > NUPA_RX_JOIN_MAX_BYTES ||
	    nupa_rx_ip_begin(header) != nupa_rx_ip_begin(next_header))
		return false;
	seq = desc->joined ? desc->seq : get_unaligned_be32(header + at + offsetof(struct tcphdr, seq));
	if (get_unaligned_be32(next_header + at + offsetof(struct tcphdr, seq)) != seq + desc->payload_bytes ||
	    before(get_unaligned_be32(next_header + ack_at), get_unaligned_be32(header + ack_at)))
		return false;
	desc->seq = seq;
	desc->joined = true;
	desc->gso_size = max(desc->gso_size ?: desc->payload_bytes, next->gso_size ?: next->payload_bytes);
	desc->gso_segs = min_t(u32, max_t(u32, desc->gso_segs, 1) + max_t(u32, next->gso_segs, 1), U16_MAX);
	desc->payload_bytes = bytes;
	desc->header_bytes = next->header_bytes;
	return true;
}

/* From @skb's network header on it is the last one's; the checksum is verified. */
void nupa_rx_set_joined(struct sk_buff *skb, const struct nupa_rx_desc *desc)
{
	struct tcphdr *th = (struct tcphdr *)(skb->data + nupa_rx_ip_bytes(desc));

	if (desc->flags & NUPA_RX_F_TCP6) {
		((struct ipv6hdr *)skb->data)->payload_len = htons(skb->len - sizeof(struct ipv6hdr));
	} else {
		((struct iphdr *)skb->data)->tot_len = htons(skb->len);
		ip_send_check((struct iphdr *)skb->data);
	}
	th->seq = htonl(desc->seq);
}
