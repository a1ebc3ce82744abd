// SPDX-License-Identifier: GPL-2.0
/*
 * Packets of a queue whose TCP payload may lie in device memory, which no CPU
 * reads.  The kernel asks before it reads, but for what is put right here.
 */
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <net/checksum.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include "nupa.h"

/* Offset of the network header behind at most one VLAN tag; *@proto is what it is of. */
static unsigned int nupa_rx_network(const struct sk_buff *skb, __be16 *proto)
{
	*proto = skb->protocol;
	if (!eth_type_vlan(*proto) || skb_headlen(skb) < VLAN_HLEN)
		return 0;
	*proto = ((const struct vlan_hdr *)skb->data)->h_vlan_encapsulated_proto;
	return VLAN_HLEN;
}

static int nupa_rx_tcp4(const struct sk_buff *skb, unsigned int at)
{
	const struct iphdr *ip = (const struct iphdr *)(skb->data + at);

	if (at + sizeof(*ip) > skb_headlen(skb) || ip->ihl < 5 || ip->protocol != IPPROTO_TCP ||
	    ip_is_fragment(ip))
		return -1;
	return at + ip->ihl * 4;
}

static int nupa_rx_tcp6(const struct sk_buff *skb, unsigned int at)
{
	const struct ipv6hdr *ip = (const struct ipv6hdr *)(skb->data + at);
	__be16 fragment = 0;
	u8 next;
	int tcp;

	if (at + sizeof(*ip) > skb_headlen(skb))
		return -1;
	next = ip->nexthdr;
	tcp = ipv6_skip_exthdr(skb, at + sizeof(*ip), &next, &fragment);
	return next == IPPROTO_TCP && !fragment ? tcp : -1;
}

/* The packet's TCP header, if it is TCP and the whole header can be read. */
static struct tcphdr *nupa_rx_tcp(struct sk_buff *skb)
{
	__be16 proto;
	unsigned int network = nupa_rx_network(skb, &proto);
	struct tcphdr *th;
	int at = -1;

	if (proto == htons(ETH_P_IP))
		at = nupa_rx_tcp4(skb, network);
	else if (proto == htons(ETH_P_IPV6))
		at = nupa_rx_tcp6(skb, network);
	if (at < 0 || at + sizeof(*th) > skb_headlen(skb))
		return NULL;
	th = (struct tcphdr *)(skb->data + at);
	return at + __tcp_hdrlen(th) <= skb_headlen(skb) ? th : NULL;
}

/*
 * TCP reads the urgent byte with a BUG() if that fails (tcp_urg()), also in a
 * later segment that does not have the flag.  So there is no urgent data while
 * headers are split from payload: the byte stays where it is in the stream.
 */
static void nupa_rx_clear_urgent(struct nupa_queue *q, struct tcphdr *th)
{
	__be16 *flags = (__be16 *)th + offsetof(struct tcphdr, ack_seq) / 2 + 2, old = *flags;

	th->urg = 0;
	csum_replace2(&th->check, old, *flags);
	csum_replace2(&th->check, th->urg_ptr, 0);
	th->urg_ptr = 0;
	nupa_rx_count(q, NUPA_RXS_urgent_cleared, 1);
}

bool nupa_rx_strict(struct nupa_queue *q, struct sk_buff *skb, const struct nupa_rx_desc *desc)
{
	struct tcphdr *th = nupa_rx_tcp(skb);

	if (th && th->urg)
		nupa_rx_clear_urgent(q, th);
	if (skb_frags_readable(skb))
		return true;
	/* Only TCP knows what to do with it, and only the switch could sum it. */
	if (th && desc->flags & NUPA_RX_F_CSUM_OK) {
		skb->ip_summed = CHECKSUM_UNNECESSARY;
		nupa_rx_count(q, NUPA_RXS_device_bytes, desc->payload_bytes);
		return true;
	}
	nupa_rx_count(q, NUPA_RXS_device_drops, 1);
	return false;
}
