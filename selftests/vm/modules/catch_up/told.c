// SPDX-License-Identifier: GPL-2.0
/* TCP hears of what was sent. */
#include <linux/bvec.h>
#include "catch_up.h"

int catch_up_xmit(struct sock *sk, struct sk_buff *skb, struct flowi *fl)
{
	struct catch_up *c = catch_up_of(sk);
	struct tcphdr *th = tcp_hdr(skb);
	u32 seq = ntohl(th->seq), bytes = skb->len - th->doff * 4;

	if (!c)
		return ip_queue_xmit(sk, skb, fl);
	/* TCP moves snd_nxt when it has handed a segment over: new to TCP, and not to the peer */
	if (bytes && seq == tcp_sk(sk)->snd_nxt && !after(seq + bytes, c->next)) {
		kfree_skb(skb);
		c->counts.dropped++;
		return 0;
	}
	/* a peer that has more than this says drops what it takes for old */
	if (!bytes && !th->fin && !th->rst && seq == tcp_sk(sk)->snd_nxt && before(seq, c->next)) {
		th->seq = htonl(c->next);
		c->counts.rewritten++;
	}
	return c->old_af_ops->queue_xmit(sk, skb, fl);
}

/* What TCP has of the message was sent then, and not now; not before what was sent before it. */
static void catch_up_stamp(struct sock *sk, const struct catch_up_message *m)
{
	struct rb_node *first = NULL, *node = rb_last(&sk->tcp_rtx_queue);
	u64 sent_ns = m->sent_ns;

	for (; node && !before(TCP_SKB_CB(rb_to_skb(node))->seq, m->seq); node = rb_prev(node))
		first = node;
	if (node)
		sent_ns = max(sent_ns, rb_to_skb(node)->skb_mstamp_ns);
	for (node = first; node; node = rb_next(node)) {
		skb_set_delivery_time(rb_to_skb(node), sent_ns, SKB_CLOCK_MONOTONIC);
		TCP_SKB_CB(rb_to_skb(node))->sacked &= ~TCPCB_REPAIRED;
	}
}

/*
 * TCP would keep it for later: a window has shrunk meanwhile, or is just large enough, the
 * peer's as well as its own (tcp_tso_should_defer()), or earlier bytes are in a queue
 * (tcp_small_queue_check()).
 * What has left already it has to hear of all the same, and TCP_REPAIR looks at none of these.
 */
static bool catch_up_insists(const struct catch_up *c, u32 bytes)
{
	const struct tcp_sock *tp = tcp_sk(c->sk);
	s64 room = (s64)tcp_snd_cwnd(tp) - tcp_packets_in_flight(tp);

	return room * tp->mss_cache <= bytes || !before(tp->write_seq + bytes, tcp_wnd_end(tp)) ||
	       !tcp_write_queue_empty(c->sk) || refcount_read(&c->sk->sk_wmem_alloc) > 1;
}

static int catch_up_tell_one(struct catch_up *c, const struct catch_up_message *m)
{
	struct msghdr msg = {
		.msg_flags = MSG_SPLICE_PAGES | MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR,
	};
	bool insists = catch_up_insists(c, m->bytes), repair = insists || c->repair;
	struct sock *sk = c->sk;
	struct tcp_sock *tp = tcp_sk(sk);
	gfp_t allocation = sk->sk_allocation;
	struct bio_vec bvec;
	int sent;

	bvec_set_page(&bvec, m->page, m->bytes, m->offset);
	iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, &bvec, 1, m->bytes);
	sk->sk_allocation = GFP_ATOMIC;
	tp->repair = repair;
	tp->repair_queue = repair ? TCP_SEND_QUEUE : TCP_NO_QUEUE;
	sent = tcp_sendmsg_locked(sk, &msg, m->bytes);
	tp->repair = 0;
	tp->repair_queue = TCP_NO_QUEUE;
	sk->sk_allocation = allocation;
	c->counts.insisted += insists;
	return sent;
}

void catch_up_tell(struct catch_up *c, __u64 *where)
{
	struct sock *sk = c->sk;
	u32 n = 0;

	c->owed = false;
	if (c->telling || !((1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT)))
		return;
	c->telling = true;
	for (; n < c->nr_untold; n++) {
		struct catch_up_message *m = &c->untold[n];
		int told = catch_up_tell_one(c, m);

		if (told > 0)
			catch_up_stamp(sk, m);
		if (told != m->bytes) {
			c->counts.failed++;
			told = max(told, 0);
			m->seq += told;
			m->offset += told;
			m->bytes -= told;
			break;
		}
		put_page(m->page);
	}
	memmove(c->untold, c->untold + n, (c->nr_untold - n) * sizeof(c->untold[0]));
	c->nr_untold -= n;
	if (c->nr_untold)
		catch_up_arm(c, CATCH_UP_LATEST_US);
	c->telling = false;
	*where += n;
}
