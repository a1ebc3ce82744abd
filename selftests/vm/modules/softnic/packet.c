// SPDX-License-Identifier: GPL-2.0
/* A frame's headers.  What is no TCP right behind a plain IP header is not for us. */
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <net/ip6_checksum.h>
#include "softnic.h"

/* Bytes of the IP packet, without what pads the frame; 0: not a packet. */
static u32 snic_parse_ipv4(const struct sk_buff *frame, struct snic_packet *packet, u32 *ip_bytes)
{
	const struct iphdr *ip = (const struct iphdr *)(frame->data + ETH_HLEN);
	u32 room = frame->len - ETH_HLEN, total, head;

	if (room < sizeof(*ip) || ip->version != 4 || ip->protocol != IPPROTO_TCP)
		return 0;
	head = ip->ihl * 4;
	total = ntohs(ip->tot_len);
	if (head < sizeof(*ip) || total < head || total > room || ip_fast_csum((u8 *)ip, ip->ihl))
		return 0;
	packet->flow.family = 4;
	memcpy(packet->flow.saddr, &ip->saddr, sizeof(ip->saddr));
	memcpy(packet->flow.daddr, &ip->daddr, sizeof(ip->daddr));
	packet->fragment = ip_is_fragment(ip);
	packet->first_fragment = packet->fragment && !(ip->frag_off & htons(IP_OFFSET));
	*ip_bytes = head;
	return total;
}

static u32 snic_parse_ipv6(const struct sk_buff *frame, struct snic_packet *packet, u32 *ip_bytes)
{
	const struct ipv6hdr *ip = (const struct ipv6hdr *)(frame->data + ETH_HLEN);
	u32 room = frame->len - ETH_HLEN, total;

	if (room < sizeof(*ip) || ip->version != 6 || ip->nexthdr != IPPROTO_TCP)
		return 0;
	total = sizeof(*ip) + ntohs(ip->payload_len);
	if (total > room)
		return 0;
	packet->flow.family = 6;
	memcpy(packet->flow.saddr, &ip->saddr, sizeof(ip->saddr));
	memcpy(packet->flow.daddr, &ip->daddr, sizeof(ip->daddr));
	*ip_bytes = sizeof(*ip);
	return total;
}

static bool snic_checksum_good(const struct sk_buff *frame, const struct snic_packet *packet,
			       u32 bytes)
{
	__wsum sum = csum_partial(packet->th, bytes, 0);

	if (packet->flow.family == 4) {
		const struct iphdr *ip = (const struct iphdr *)(frame->data + ETH_HLEN);

		return !csum_tcpudp_magic(ip->saddr, ip->daddr, bytes, IPPROTO_TCP, sum);
	}
	return !csum_ipv6_magic((const struct in6_addr *)packet->flow.saddr,
				(const struct in6_addr *)packet->flow.daddr, bytes, IPPROTO_TCP, sum);
}

bool snic_packet_parse(const struct sk_buff *frame, struct snic_packet *packet)
{
	const struct ethhdr *eth = (const struct ethhdr *)frame->data;
	u32 total, ip_bytes = 0, tcp_bytes, head;
	const struct tcphdr *th;

	memset(packet, 0, sizeof(*packet));
	if (frame->len < ETH_HLEN)
		return false;
	total = eth->h_proto == htons(ETH_P_IP)   ? snic_parse_ipv4(frame, packet, &ip_bytes) :
		eth->h_proto == htons(ETH_P_IPV6) ? snic_parse_ipv6(frame, packet, &ip_bytes) :
						    0;
	if (total < ip_bytes + sizeof(*th))
		return false;
	th = (const struct tcphdr *)(frame->data + ETH_HLEN + ip_bytes);
	packet->th = th;
	packet->flow.sport = th->source;
	packet->flow.dport = th->dest;
	packet->seq = ntohl(th->seq);
	packet->ack = ntohl(th->ack_seq);
	packet->window = ntohs(th->window);
	tcp_bytes = total - ip_bytes;
	if (packet->fragment)
		return packet->first_fragment;	/* of others nobody knows the connection */
	head = th->doff * 4;
	if (head < sizeof(*th) || head > tcp_bytes)
		return false;
	packet->options = (const u8 *)(th + 1);
	packet->option_bytes = head - sizeof(*th);
	packet->header_bytes = ETH_HLEN + ip_bytes + head;
	packet->payload = frame->data + packet->header_bytes;
	packet->bytes = tcp_bytes - head;
	packet->checksum_good = snic_checksum_good(frame, packet, tcp_bytes);
	return true;
}

struct tqp_offload_flow snic_flow_reversed(const struct tqp_offload_flow *flow)
{
	struct tqp_offload_flow other = {
		.family = flow->family,
		.sport = flow->dport,
		.dport = flow->sport,
	};

	memcpy(other.saddr, flow->daddr, sizeof(other.saddr));
	memcpy(other.daddr, flow->saddr, sizeof(other.daddr));
	return other;
}
