// SPDX-License-Identifier: GPL-2.0
/*
 * Ingress: the last LOCAL_IN hook reads tcp_bth, leaves a mapping on the skb,
 * and gives TCP back its timestamp option.
 *
 * It looks at every TCP packet with options, in the network namespaces that
 * have a conn, and knows sockets only for packets without payload (rtr and
 * credits), which never reach a receive queue.
 */
#include <linux/mutex.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <net/inet_hashtables.h>
#include <net/inet6_hashtables.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/netns/generic.h>
#include <tcp_qp/tcp_bth_option.h>
#include "conn/skb_map.h"
#include "handshake/handshake.h"
#include "socket/socket.h"
#include "stream/place.h"

enum {
	TQP_HOOK_LINGER_MS = 1000,	/* each registration may patch the kernel's text */
};

/*
 * Put a timestamp option where tcp_bth was, the rest NOPs.  A checksum that is still to be looked at
 * is adjusted by the difference, so it is exactly as right or wrong as before.
 * @opts: all options of the header, so that the sums start at an even offset
 */
static void tqp_restore_timestamps(struct sk_buff *skb, struct tcphdr *th, u8 *opts, u32 room,
				   u32 at, const struct tcp_bth *bth)
{
	bool adjust = skb->ip_summed != CHECKSUM_PARTIAL && !skb_csum_unnecessary(skb);
	__wsum before = adjust ? csum_partial(opts, room, 0) : 0;
	u8 *opt = opts + at;

	memset(opt, TCPOPT_NOP, tcp_bth_opt_bytes(bth));
	opt[2] = TCPOPT_TIMESTAMP;
	opt[3] = TCPOLEN_TIMESTAMP;
	tcp_bth_put32(opt + 4, bth->tsval);
	tcp_bth_put32(opt + 8, bth->tsecr);
	if (adjust)
		th->check = csum_fold(csum_add(csum_sub(~csum_unfold(th->check), before),
					       csum_partial(opts, room, 0)));
}

/*
 * Options that are a timestamp and @cut bytes of NOPs lose these: such a header is what TCP expects
 * next, which spares it a look at each of them.  From here on only IP and TCP read headers.
 */
static void tqp_cut_options(struct sk_buff *skb, u32 ihl, u32 cut, u8 pf)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip;
	__be16 was;

	memmove(skb->data + cut, skb->data, ihl + sizeof(struct tcphdr) + TCPOLEN_TSTAMP_ALIGNED);
	__skb_pull(skb, cut);
	skb_reset_network_header(skb);
	skb_set_transport_header(skb, ihl);
	tcp_hdr(skb)->doff -= cut / 4;
	/* zero: it is longer than that can say */
	if (pf == NFPROTO_IPV4) {
		ip = ip_hdr(skb);
		was = ip->tot_len;
		if (was) {
			be16_add_cpu(&ip->tot_len, -cut);
			csum_replace2(&ip->check, was, ip->tot_len);
		}
	} else {
		ip6 = ipv6_hdr(skb);
		if (ip6->payload_len)
			be16_add_cpu(&ip6->payload_len, -cut);
	}
}

/*
 * Of what is expected TCP may send the ACK before it tells us of it, so this is for payload that is
 * in its place: what is still to be copied, and may be refused, must not be acknowledged yet.  Nor
 * must a SEND whose key to invalidate nobody has looked at.
 */
static bool tqp_may_be_expected(const struct sk_buff *skb, const struct tcp_bth *bth, u32 room)
{
	return skb->decrypted && skb->ip_summed == CHECKSUM_UNNECESSARY &&
	       tcp_bth_opt_bytes(bth) == room &&
	       tcp_bth_op(bth->opcode)->ext != TCP_BTH_EXT_IETH;
}

/* write_seq, not snd_nxt: over loopback the ACK is here before tcp_write_xmit() moved snd_nxt */
static bool tqp_ack_plausible(const struct sock *sk, const struct tcphdr *th)
{
	u32 ack = ntohl(th->ack_seq);

	return th->ack && !before(ack, READ_ONCE(tcp_sk(sk)->snd_una)) &&
	       !after(ack, READ_ONCE(tcp_sk(sk)->write_seq));
}

static struct sock *tqp_lookup(struct net *net, struct sk_buff *skb, const struct tcphdr *th,
			       u8 pf, bool *ref)
{
	*ref = false;
	if (skb->sk && sk_fullsock(skb->sk))
		return skb->sk;		/* early demux; the skb holds it */
	*ref = true;
	if (pf == NFPROTO_IPV4)
		return __inet_lookup_established(TQP_LOOKUP_ARGS(net), ip_hdr(skb)->saddr,
						 th->source, ip_hdr(skb)->daddr, ntohs(th->dest),
						 inet_iif(skb), inet_sdif(skb));
#if IS_ENABLED(CONFIG_IPV6)
	return __inet6_lookup_established(TQP_LOOKUP_ARGS(net), &ipv6_hdr(skb)->saddr,
					  th->source, &ipv6_hdr(skb)->daddr, ntohs(th->dest),
					  inet6_iif(skb), inet6_sdif(skb));
#else
	return NULL;
#endif
}

/* @payload: bytes of it.  rtr and credits: hints until TCP's own checks of the addresses and the ACK hold. */
static void tqp_hint(struct net *net, struct sk_buff *skb, const struct tcphdr *th,
		     const struct tcp_bth *bth, u32 payload, u8 pf)
{
	struct tqp_conn *conn;
	struct sock *sk;
	bool ref;

	sk = tqp_lookup(net, skb, th, pf, &ref);
	if (!sk)
		return;
	if (sk_fullsock(sk) && READ_ONCE(inet_csk(sk)->icsk_ulp_ops) == &tqp_ulp_ops &&
	    tqp_ack_plausible(sk, th)) {
		conn = tqp_conn_rcu(sk);
		if (conn && payload && bth->opcode == TCP_BTH_OP_ACKNOWLEDGE)
			tqp_peer_is_stock(conn);
		if (conn && bth->opcode == TCP_BTH_OP_ACKNOWLEDGE &&
		    bth->ext_bytes == TCP_BTH_EXT4_BYTES)
			tqp_peer_credits(conn, payload ? (u16)bth->ext4 : bth->ext4);
		if (conn)
			tqp_peer_flags(conn, bth->flags);
	}
	if (ref)
		sock_gen_put(sk);
}

/* Before the window: TCP sends an ACK, which the peer may lack, and looks at nothing else of it. */
static bool tqp_in_is_old(const struct sock *sk, const struct sk_buff *skb,
			  const struct tcphdr *th, u32 ihl)
{
	u32 end = ntohl(th->seq) + skb->len - ihl - th->doff * 4 + th->fin;

	return !th->syn && !th->rst && before(end, READ_ONCE(tcp_sk(sk)->rcv_wup));
}

/*
 * Would TCP take it, or soon?  The first urgent packet ends placing for good, so none may do that
 * who knows no more than the addresses.
 */
static bool tqp_in_is_plausible(const struct sock *sk, struct sk_buff *skb,
				const struct nf_hook_state *state, const struct tcphdr *th, u32 ihl)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 edge = READ_ONCE(tp->rcv_wup) + READ_ONCE(tp->rcv_wnd);

	return tqp_ack_plausible(sk, th) && !after(ntohl(th->seq), edge) &&
	       (skb_csum_unnecessary(skb) ||
		!nf_checksum(skb, NF_INET_LOCAL_IN, ihl, IPPROTO_TCP, state->pf));
}

/* An urgent one.  False: TCP must not see it. */
static bool tqp_in_urgent_may(const struct sock *sk, struct sk_buff *skb,
			      const struct nf_hook_state *state, const struct tcphdr *th, u32 ihl)
{
	if (tqp_urgent_is_first(sk)) {
		if (tqp_in_is_old(sk, skb, th, ihl))
			return true;
		if (!tqp_in_is_plausible(sk, skb, state, th, ihl))
			return false;
	}
	return tqp_urgent_may(sk, false);
}

/* Of sockets without a queue pair.  False: TCP must not see it. */
static bool tqp_in_may(struct sk_buff *skb, const struct nf_hook_state *state,
		       const struct tcphdr *th, u32 ihl)
{
	bool placed = skb->decrypted && !skb_frags_readable(skb), ref, may;
	struct sock *sk;

	if (likely(!th->urg && !placed))
		return true;
	sk = tqp_lookup(state->net, skb, th, state->pf, &ref);
	if (!sk || !sk_fullsock(sk))
		may = !placed;
	else if (placed)
		may = tqp_urgent_may(sk, true);
	else
		may = tqp_in_urgent_may(sk, skb, state, th, ihl);
	if (sk && ref)
		sock_gen_put(sk);
	return may;
}

/* The packet starts at the network header; @ihl bytes on is TCP. */
static unsigned int tqp_in(struct sk_buff *skb, const struct nf_hook_state *state, u32 ihl)
{
	struct tqp_skb_map map;
	struct tcp_bth bth;
	struct tcphdr *th;
	u32 thl, room, payload;
	unsigned int at;
	bool joined;
	int err;

	if (!pskb_may_pull(skb, ihl + sizeof(*th)))
		return NF_ACCEPT;
	th = (struct tcphdr *)(skb_network_header(skb) + ihl);
	if (!tqp_in_may(skb, state, th, ihl))
		return NF_DROP;
	thl = th->doff * 4;
	if (thl < sizeof(*th) + TCP_BTH_OPT_MIN_BYTES || th->syn || !pskb_may_pull(skb, ihl + thl))
		return NF_ACCEPT;
	th = (struct tcphdr *)(skb_network_header(skb) + ihl);
	room = thl - sizeof(*th);
	payload = skb->len - ihl - thl;
	err = tcp_bth_find((u8 *)(th + 1), room, ntohl(th->seq), payload, &bth, &at);
	/* messages that the NIC has completed, in one packet: nobody asks which byte is whose */
	joined = err == TCP_BTH_E_RANGE && skb->decrypted;
	if (joined)
		err = tcp_bth_find((u8 *)(th + 1), room, ntohl(th->seq), 0, &bth, &at);
	if (err)
		return NF_ACCEPT;

	if (bth.flags & (TCP_BTH_F_RTR | TCP_BTH_F_RTR_ACK) || !payload)
		if (skb_csum_unnecessary(skb) ||
		    !nf_checksum(skb, NF_INET_LOCAL_IN, ihl, IPPROTO_TCP, state->pf))
			tqp_hint(state->net, skb, th, &bth, payload, state->pf);
	if (!payload)
		return NF_ACCEPT;
	/* placed payload the switch has checked; it is not here */
	if (bth.flags & TCP_BTH_F_ICRC && !skb->decrypted &&
	    tqp_icrc((u8 *)(th + 1) + at, tcp_bth_opt_bytes(&bth), skb, ihl + thl) != bth.icrc) {
		__TCP_INC_STATS(state->net, TCP_MIB_CSUMERRORS);	/* as a bad checksum: TCP resends */
		__TCP_INC_STATS(state->net, TCP_MIB_INERRS);
		return NF_DROP_REASON(skb, SKB_DROP_REASON_TCP_CSUM, 0);
	}

	if (!joined) {
		tqp_map_fill(&map, &bth, payload);
		if (!tqp_skb_map_put(skb, &map))
			return NF_DROP;		/* without it the bytes would be lost to the QP: TCP resends */
	}
	if (bth.flags & TCP_BTH_F_TIMESTAMP) {
		if (skb_ensure_writable(skb, ihl + thl))
			return NF_DROP;
		th = (struct tcphdr *)(skb_network_header(skb) + ihl);
		tqp_restore_timestamps(skb, th, (u8 *)(th + 1), room, at, &bth);
		if (tqp_may_be_expected(skb, &bth, room))
			tqp_cut_options(skb, ihl, room - TCPOLEN_TSTAMP_ALIGNED, state->pf);
	}
	return NF_ACCEPT;
}

static unsigned int tqp_in4(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	const struct iphdr *iph = ip_hdr(skb);

	if (iph->protocol != IPPROTO_TCP)
		return NF_ACCEPT;
	return tqp_in(skb, state, iph->ihl * 4);
}

static unsigned int tqp_in6(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	__be16 frag_off;
	u8 nexthdr = ipv6_hdr(skb)->nexthdr;
	int at = ipv6_skip_exthdr(skb, sizeof(struct ipv6hdr), &nexthdr, &frag_off);

	if (at < 0 || nexthdr != IPPROTO_TCP)
		return NF_ACCEPT;
	return tqp_in(skb, state, at);
}

static const struct nf_hook_ops tqp_hooks[] = {
	{ .hook = tqp_in4, .pf = NFPROTO_IPV4, .hooknum = NF_INET_LOCAL_IN, .priority = INT_MAX },
#if IS_ENABLED(CONFIG_IPV6)
	{ .hook = tqp_in6, .pf = NFPROTO_IPV6, .hooknum = NF_INET_LOCAL_IN, .priority = INT_MAX },
#endif
};

/* ---- which namespaces have them ---- */

struct tqp_net {
	struct net *net;
	struct mutex lock;		/* of the two below; outside nf_hook_mutex */
	u32 conns;
	bool hooked;
	struct delayed_work drop_work;	/* some time after the last conn */
};

static unsigned int tqp_net_id;

int tqp_hook_get(struct net *net)
{
	struct tqp_net *tn = net_generic(net, tqp_net_id);
	int err = 0;

	mutex_lock(&tn->lock);
	if (!tn->hooked)
		err = nf_register_net_hooks(net, tqp_hooks, ARRAY_SIZE(tqp_hooks));
	if (!err) {
		tn->hooked = true;
		tn->conns++;
	}
	mutex_unlock(&tn->lock);
	return err;
}

void tqp_hook_put(struct net *net)
{
	struct tqp_net *tn = net_generic(net, tqp_net_id);

	mutex_lock(&tn->lock);
	if (!--tn->conns)
		mod_delayed_work(tqp_wq, &tn->drop_work, msecs_to_jiffies(TQP_HOOK_LINGER_MS));
	mutex_unlock(&tn->lock);
}

static void tqp_hook_drop(struct tqp_net *tn)
{
	mutex_lock(&tn->lock);
	if (tn->hooked && !tn->conns) {
		nf_unregister_net_hooks(tn->net, tqp_hooks, ARRAY_SIZE(tqp_hooks));
		tn->hooked = false;
	}
	mutex_unlock(&tn->lock);
}

static void tqp_hook_drop_work(struct work_struct *work)
{
	tqp_hook_drop(container_of(to_delayed_work(work), struct tqp_net, drop_work));
}

static int __net_init tqp_net_init(struct net *net)
{
	struct tqp_net *tn = net_generic(net, tqp_net_id);

	tn->net = net;
	mutex_init(&tn->lock);
	INIT_DELAYED_WORK(&tn->drop_work, tqp_hook_drop_work);
	return 0;
}

/* A conn's socket keeps its namespace, so none is left. */
static void __net_exit tqp_net_exit(struct net *net)
{
	struct tqp_net *tn = net_generic(net, tqp_net_id);

	WARN_ON_ONCE(tn->conns);
	cancel_delayed_work_sync(&tn->drop_work);
	tqp_hook_drop(tn);
}

static struct pernet_operations tqp_net_ops = {
	.init = tqp_net_init,
	.exit = tqp_net_exit,
	.id = &tqp_net_id,
	.size = sizeof(struct tqp_net),
};

static const struct tqp_place_hooks tqp_hook_places = {
	.get = tqp_hook_get,
	.put = tqp_hook_put,
};

int tqp_hook_init(void)
{
	tqp_place_init(&tqp_hook_places);
	return register_pernet_subsys(&tqp_net_ops);
}

void tqp_hook_exit(void)
{
	unregister_pernet_subsys(&tqp_net_ops);
}
