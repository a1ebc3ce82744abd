// SPDX-License-Identifier: GPL-2.0
/* The hardware: segments that TCP does not know of. */
#include <net/ip.h>
#include "catch_up.h"

void catch_up_template(struct sock *sk, struct catch_up_template *t)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct inet_sock *inet = inet_sk(sk);

	*t = (struct catch_up_template) {
		.saddr = inet->inet_saddr,
		.daddr = inet->inet_daddr,
		.sport = inet->inet_sport,
		.dport = inet->inet_dport,
		.ack = tp->rcv_nxt,
		.tsval = tcp_clock_ts(tp->tcp_usec_ts) + tp->tsoffset,
		.tsecr = tp->rx_opt.ts_recent,
		.window = min(tp->rcv_wnd >> tp->rx_opt.rcv_wscale, 65535U),
		.mss = tp->mss_cache,
		.timestamps = tp->rx_opt.tstamp_ok,
		.dst = dst_clone(__sk_dst_get(sk)),
	};
}

static void catch_up_tcp_header(const struct catch_up_template *t, struct sk_buff *skb, u32 seq)
{
	u32 payload = skb->len, bytes = sizeof(struct tcphdr) + (t->timestamps ? TCPOLEN_TSTAMP_ALIGNED : 0);
	struct tcphdr *th = skb_push(skb, bytes);
	__be32 *option = (__be32 *)(th + 1);

	memset(th, 0, sizeof(*th));
	skb_reset_transport_header(skb);
	th->source = t->sport;
	th->dest = t->dport;
	th->seq = htonl(seq);
	th->ack_seq = htonl(t->ack);
	th->doff = bytes / 4;
	th->ack = 1;
	th->psh = 1;
	th->window = htons(t->window);
	if (t->timestamps) {
		option[0] = htonl(TCPOPT_NOP << 24 | TCPOPT_NOP << 16 | TCPOPT_TIMESTAMP << 8 |
				  TCPOLEN_TIMESTAMP);
		option[1] = htonl(t->tsval);
		option[2] = htonl(t->tsecr);
	}
	skb->ip_summed = CHECKSUM_PARTIAL;
	skb->csum_start = skb_transport_header(skb) - skb->head;
	skb->csum_offset = offsetof(struct tcphdr, check);
	th->check = ~tcp_v4_check(payload + bytes, t->saddr, t->daddr, 0);
}

static void catch_up_ip_header(const struct catch_up_template *t, struct sk_buff *skb)
{
	struct iphdr *iph = skb_push(skb, sizeof(*iph));

	skb_reset_network_header(skb);
	*iph = (struct iphdr) {
		.version = 4,
		.ihl = 5,
		.frag_off = htons(IP_DF),
		.ttl = 64,
		.protocol = IPPROTO_TCP,
		.saddr = t->saddr,
		.daddr = t->daddr,
	};
	skb->protocol = htons(ETH_P_IP);
	skb_dst_set(skb, dst_clone(t->dst));
}

/* A segment that cannot be made is one that the network has lost. */
void catch_up_emit(const struct catch_up_template *t, const struct catch_up_message *m)
{
	for (u32 at = 0; at < m->bytes;) {
		struct sk_buff *skb = alloc_skb(MAX_TCP_HEADER, GFP_ATOMIC);
		u32 bytes = min(m->bytes - at, t->mss);

		if (!skb)
			return;
		skb_reserve(skb, MAX_TCP_HEADER);
		get_page(m->page);
		skb_add_rx_frag(skb, 0, m->page, at, bytes, PAGE_SIZE);
		catch_up_tcp_header(t, skb, m->seq + at);
		catch_up_ip_header(t, skb);
		local_bh_disable();
		ip_local_out(dev_net(t->dst->dev), NULL, skb);
		local_bh_enable();
		at += bytes;
	}
}
