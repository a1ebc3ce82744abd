// SPDX-License-Identifier: GPL-2.0
/*
 * Transmit.
 *
 * The netdev queue's lock covers the producer; clean_lock covers the consumer,
 * which is NAPI, or the producer itself when the ring runs short.
 *
 * Interrupts.  NAPI asks for one when three quarters of what waits is done, so
 * bulk traffic takes few.  Pure ACKs, and what is short and the only thing that
 * its connection has under way, are orphaned when sent and hold nothing anybody
 * waits for: they ask for none, and are not reported to BQL.
 */
#include <linux/dma-mapping.h>
#include <linux/memremap.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/netdev_queues.h>
#include <net/tcp.h>
#include "nupa.h"

static_assert(MAX_SKB_FRAGS + 1 <= NUPA_TX_FRAGS_MAX);

static inline struct nupa_tx_slot *nupa_tx_slot(struct nupa_txq *tx, u32 index)
{
	return &tx->slots[index & (tx->entries - 1)];
}

static inline union nupa_tx_entry *nupa_tx_entry(struct nupa_txq *tx, u32 index)
{
	return &tx->ring[index & (tx->entries - 1)];
}

/* Either side asks, and the other's index may be an older one: who sends looks again. */
static inline u32 nupa_tx_room(const struct nupa_txq *tx)
{
	return tx->entries - (READ_ONCE(tx->prod) - READ_ONCE(tx->tail));
}

/* ---- consumer ---- */

static void nupa_tx_unmap(struct nupa_queue *q, u32 first, u32 bufs)
{
	struct device *dev = nupa_device(q->nupa);
	u32 i;

	for (i = 0; i < bufs; i++) {
		struct nupa_tx_slot *slot = nupa_tx_slot(&q->tx, first + i);

		if (!slot->bytes)
			continue;
		if (!i)		/* the linear part */
			dma_unmap_single(dev, slot->addr, slot->bytes, DMA_TO_DEVICE);
		else
			dma_unmap_page(dev, slot->addr, slot->bytes, DMA_TO_DEVICE);
	}
}

/* clean_lock */
static void nupa_tx_reap(struct nupa_queue *q, u32 cons, int budget)
{
	struct netdev_queue *txq = netdev_get_tx_queue(q->nupa->netdev, q->index);
	struct nupa_txq *tx = &q->tx;
	u32 tail = tx->tail, packets = 0, bytes = 0;

	while (tail != cons) {
		struct nupa_tx_slot *slot = nupa_tx_slot(tx, tail);

		if (cons - tail < slot->entries)
			break;		/* half a packet is not done */
		nupa_tx_unmap(q, tail + 1, slot->entries - 1);
		bytes += slot->bytes;
		packets++;
		napi_consume_skb(slot->skb, budget);
		slot->skb = NULL;
		tail += slot->entries;
	}
	if (!packets)
		return;
	WRITE_ONCE(tx->tail, tail);
	if (!bytes)
		smp_mb();	/* BQL's barrier is only there when it has bytes */
	netif_txq_completed_wake(txq, packets, bytes, nupa_tx_room(tx), NUPA_TX_WAKE_ENTRIES);
}

static void nupa_tx_clean(struct nupa_queue *q, int budget)
{
	struct nupa_txq *tx = &q->tx;
	u32 cons = nupa_get_acquire(&tx->ctl->cons);

	if (cons - tx->tail > READ_ONCE(tx->prod) - tx->tail)
		nupa_fail(q->nupa, "transmit consumer index out of range");
	else
		nupa_tx_reap(q, cons, budget);
}

void nupa_tx_poll(struct nupa_queue *q, int budget)
{
	if (nupa_failed(q->nupa))
		return;
	spin_lock(&q->tx.clean_lock);
	nupa_tx_clean(q, budget);
	spin_unlock(&q->tx.clean_lock);
}

static void nupa_tx_reclaim(struct nupa_queue *q)
{
	if (!spin_trylock(&q->tx.clean_lock))
		return;		/* NAPI is at it */
	nupa_tx_clean(q, 0);
	spin_unlock(&q->tx.clean_lock);
}

/* Entries from @tail on whose completion somebody waits for. */
static u32 nupa_tx_awaited(const struct nupa_txq *tx, u32 tail)
{
	u32 awaited = READ_ONCE(tx->urgent) - tail;

	return awaited <= tx->entries ? awaited : 0;
}

bool nupa_tx_arm(struct nupa_queue *q)
{
	struct nupa_txq *tx = &q->tx;
	u32 tail = READ_ONCE(tx->tail), awaited, event;

	if (nupa_failed(q->nupa))
		return false;
	awaited = nupa_tx_awaited(tx, tail);
	if (!awaited) {
		nupa_put(&tx->ctl->irq_event, tail - 1);
		smp_store_release(&tx->parked, true);	/* after the event: xmit may overwrite it */
		smp_mb();		/* pairs with nupa_tx_want_irq() */
		awaited = nupa_tx_awaited(tx, tail);
		if (!awaited)
			return false;
		WRITE_ONCE(tx->parked, false);
	}
	event = tail + awaited / 4 * 3;
	nupa_put(&tx->ctl->irq_event, event);
	virt_mb();			/* the event before cons */
	return nupa_get(&tx->ctl->cons) - tail > event - tail;
}

void nupa_tx_disarm(struct nupa_queue *q)
{
	struct nupa_txq *tx = &q->tx;

	WRITE_ONCE(tx->parked, false);
	nupa_put(&tx->ctl->irq_event, READ_ONCE(tx->tail) - 1);
}

bool nupa_tx_done(struct nupa_queue *q)
{
	struct nupa_txq *tx = &q->tx;
	u32 tail = READ_ONCE(tx->tail);

	return nupa_tx_awaited(tx, tail) && nupa_get(&tx->ctl->cons) != tail;
}

bool nupa_tx_stuck(struct nupa_queue *q)
{
	return nupa_get(&q->tx.ctl->cons) == READ_ONCE(q->tx.tail);
}

/* ---- producer ---- */

/* Before the packet at [@first, @end) is published, so its completion cannot be missed. */
static void nupa_tx_want_irq(struct nupa_txq *tx, u32 first, u32 end)
{
	WRITE_ONCE(tx->urgent, end);
	smp_mb();			/* pairs with nupa_tx_arm() */
	if (smp_load_acquire(&tx->parked)) {
		WRITE_ONCE(tx->parked, false);
		nupa_put(&tx->ctl->irq_event, first);
	}
}

static void nupa_tx_kick(struct nupa_queue *q)
{
	struct nupa_txq *tx = &q->tx;
	u32 old = tx->kicked;

	if (old == tx->prod)
		return;
	tx->kicked = tx->prod;
	virt_mb();			/* prod before db_event, which stays behind while the switch looks at prod */
	if (!nupa_need_event(nupa_get(&tx->ctl->db_event), tx->prod, old))
		return;
	nupa_doorbell(q->nupa, nupa_queue_vector(q));
	nupa_tx_count(q, NUPA_TXS_doorbells, 1);
}

/* Where the transport header starts, as far as the offloads are concerned. */
static unsigned int nupa_tx_l4_start(const struct sk_buff *skb)
{
	return skb_is_gso(skb) ? skb_transport_offset(skb) : skb_checksum_start_offset(skb);
}

/* All headers must lie in the first buffer, and the switch reads them there. */
static bool nupa_tx_pull(struct sk_buff *skb)
{
	unsigned int start, bytes;
	const struct tcphdr *th;

	if (!skb_is_nonlinear(skb))
		return true;
	if (!skb_is_gso(skb) && skb->ip_summed != CHECKSUM_PARTIAL)
		return pskb_may_pull(skb, min_t(unsigned int, skb->len, NUPA_TX_PULL_BYTES));
	start = nupa_tx_l4_start(skb);
	if (!skb_is_gso(skb) && skb->csum_offset != offsetof(struct tcphdr, check)) {
		bytes = max_t(unsigned int, skb->csum_offset + sizeof(__sum16),
			      sizeof(struct udphdr));
		return pskb_may_pull(skb, start + bytes);
	}
	if (!pskb_may_pull(skb, start + sizeof(*th)))
		return false;
	th = (const struct tcphdr *)(skb->data + start);
	return pskb_may_pull(skb, start + __tcp_hdrlen(th));
}

static void nupa_tx_buf(struct nupa_queue *q, u32 index, dma_addr_t addr, u32 bytes, bool mapped)
{
	union nupa_tx_entry *entry = nupa_tx_entry(&q->tx, index);
	struct nupa_tx_slot *slot = nupa_tx_slot(&q->tx, index);

	slot->addr = addr;
	slot->bytes = mapped ? bytes : 0;
	entry->buf.addr = cpu_to_le64(addr);
	entry->buf.bytes = cpu_to_le32(bytes);
	entry->buf.reserved = 0;
}

static bool nupa_tx_map_head(struct nupa_queue *q, u32 index, struct sk_buff *skb)
{
	struct device *dev = nupa_device(q->nupa);
	u32 bytes = skb_headlen(skb);
	dma_addr_t addr = dma_map_single(dev, skb->data, bytes, DMA_TO_DEVICE);

	if (dma_mapping_error(dev, addr))
		return false;
	nupa_tx_buf(q, index, addr, bytes, true);
	return true;
}

/* Device memory: its address is its exporter's, who unmaps it when no packet has it any more. */
static bool nupa_tx_map_netmem(struct nupa_queue *q, u32 index, const skb_frag_t *frag, u32 bytes)
{
	dma_addr_t addr;

	if (!NUPA_DEVICE_MEMORY_TX)	/* received, and forwarded: the core did not look */
		return false;
	addr = skb_frag_dma_map(nupa_device(q->nupa), frag, 0, bytes, DMA_TO_DEVICE);
	if (!nupa_reaches(q->nupa, addr, bytes))
		return false;
	nupa_tx_buf(q, index, addr, bytes, false);
	return true;
}

static bool nupa_tx_map_frag(struct nupa_queue *q, u32 index, const skb_frag_t *frag)
{
	struct device *dev = nupa_device(q->nupa);
	u32 bytes = skb_frag_size(frag);
	dma_addr_t addr;

	if (unlikely(skb_frag_is_net_iov(frag)))
		return nupa_tx_map_netmem(q, index, frag, bytes);
	addr = skb_frag_dma_map(dev, frag, 0, bytes, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, addr))
		return false;
	if (unlikely(is_zone_device_page(skb_frag_page(frag))) &&
	    !nupa_hbm_reaches(q->nupa, addr, bytes)) {
		/* a route that moved here: this switch would stop the port */
		dma_unmap_page(dev, addr, bytes, DMA_TO_DEVICE);
		return false;
	}
	nupa_tx_buf(q, index, addr, bytes, true);
	return true;
}

/* Number of buffer entries from prod + 1 on, or 0. */
static u32 nupa_tx_map(struct nupa_queue *q, struct sk_buff *skb)
{
	u32 first = q->tx.prod + 1, n = 1;
	int i;

	if (!nupa_tx_map_head(q, first, skb))
		return 0;
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];

		if (!skb_frag_size(frag))
			continue;
		if (!nupa_tx_map_frag(q, first + n, frag))
			goto unmap;
		n++;
	}
	return n;
unmap:
	nupa_tx_unmap(q, first, n);
	return 0;
}

static void nupa_tx_context(struct nupa_tx_ctx *ctx, const struct sk_buff *skb, u32 bufs)
{
	const struct skb_shared_info *info = skb_shinfo(skb);
	u16 flags = 0, mss = 0, header_bytes = 0, start = 0, offset = 0;

	if (skb_is_gso(skb)) {
		flags = info->gso_type & SKB_GSO_TCPV6 ? NUPA_TX_F_TSO6 : NUPA_TX_F_TSO4;
		if (info->gso_type & SKB_GSO_TCP_ECN)
			flags |= NUPA_TX_F_ECN;
		mss = info->gso_size;
		header_bytes = skb_tcp_all_headers(skb);
		start = skb_transport_offset(skb);
		offset = offsetof(struct tcphdr, check);
	} else if (skb->ip_summed == CHECKSUM_PARTIAL) {
		flags = NUPA_TX_F_CSUM;
		start = skb_checksum_start_offset(skb);
		offset = skb->csum_offset;
	}
	ctx->flags = cpu_to_le16(flags);
	ctx->bufs = cpu_to_le16(bufs);
	ctx->bytes = cpu_to_le32(skb->len);
	ctx->mss = cpu_to_le16(mss);
	ctx->header_bytes = cpu_to_le16(header_bytes);
	ctx->csum_start = cpu_to_le16(start);
	ctx->csum_offset = cpu_to_le16(offset);
}

static void nupa_tx_count_packet(struct nupa_queue *q, const struct sk_buff *skb, bool ack)
{
	u64_stats_update_begin(&q->tx_stats.syncp);
	u64_stats_add(&q->tx_stats.v[NUPA_TXS_packets], skb_shinfo(skb)->gso_segs ?: 1);
	u64_stats_add(&q->tx_stats.v[NUPA_TXS_bytes], skb->len);
	u64_stats_add(&q->tx_stats.v[NUPA_TXS_pure_acks], ack);
	u64_stats_update_end(&q->tx_stats.syncp);
}

/*
 * TCP's autocorking and small queues begin with what is sent behind it, which so
 * is awaited: a round trip is one interrupt, and not two.
 */
static bool nupa_tx_alone(struct sk_buff *skb, const struct nupa_queue *asked)
{
	u32 most = nupa_rx_later(asked) ? NUPA_TX_ALONE_LATER : NUPA_TX_ALONE_PACKETS;
	const struct sock *sk = skb->sk;

	return skb->len <= NUPA_TX_ALONE_MAX_BYTES && sk && sk_fullsock(sk) && sk_is_tcp(sk) &&
	       !skb_zcopy(skb) && tcp_sk(sk)->packets_out <= most;
}

/* The packet's @bufs buffers are mapped: hand it to the switch.  True: ring the doorbell. */
static bool nupa_tx_publish(struct nupa_queue *q, struct netdev_queue *txq, struct sk_buff *skb,
			    u32 bufs, const struct nupa_queue *asked)
{
	bool more = netdev_xmit_more(), ack = skb_is_tcp_pure_ack(skb);
	bool awaited = !ack && !nupa_tx_alone(skb, asked);
	struct nupa_txq *tx = &q->tx;
	struct nupa_tx_slot *slot = nupa_tx_slot(tx, tx->prod);
	u32 first = tx->prod, end = first + 1 + bufs, bytes = skb->len;
	bool last, kick;

	last = tx->entries - (end - READ_ONCE(tx->tail)) < NUPA_TX_STOP_ENTRIES;
	nupa_tx_context(&nupa_tx_entry(tx, first)->ctx, skb, bufs);
	nupa_tx_count_packet(q, skb, ack);
	slot->skb = skb;
	slot->entries = 1 + bufs;
	slot->bytes = awaited ? bytes : 0;
	skb_tx_timestamp(skb);
	if (!awaited) {
		skb_orphan(skb);
		nf_reset_ct(skb);
	}
	if (awaited || last)
		nupa_tx_want_irq(tx, first, end);
	kick = awaited ? __netdev_tx_sent_queue(txq, bytes, more) :
			 !more || netif_xmit_stopped(txq);
	WRITE_ONCE(tx->prod, end);
	nupa_put_release(&tx->ctl->prod, end);	/* entries first; the skb is no longer ours */
	netif_txq_maybe_stop(txq, nupa_tx_room(tx), NUPA_TX_STOP_ENTRIES, NUPA_TX_WAKE_ENTRIES);
	return kick || netif_xmit_stopped(txq);
}

static netdev_tx_t nupa_tx_drop(struct nupa_queue *q, struct sk_buff *skb, enum nupa_tx_stat why)
{
	nupa_tx_count(q, why, 1);
	if (why != NUPA_TXS_drops)
		nupa_tx_count(q, NUPA_TXS_drops, 1);
	dev_kfree_skb_any(skb);
	if (!netdev_xmit_more() && !nupa_failed(q->nupa))
		nupa_tx_kick(q);	/* for the packets before */
	return NETDEV_TX_OK;
}

/* Whose packets @skb answers, as far as its socket knows; else the queue that it is sent by. */
static struct nupa_queue *nupa_tx_answers(struct nupa_queue *q, const struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;
	int index = sk && sk_fullsock(sk) ? sk_rx_queue_get(sk) : -1;

	return index >= 0 && index < q->nupa->nr_queues ? &q->nupa->queues[index] : q;
}

netdev_tx_t nupa_tx_xmit(struct sk_buff *skb, struct net_device *dev)
{
	u16 index = skb_get_queue_mapping(skb);
	struct nupa_dev *nupa = netdev_priv(dev);
	struct netdev_queue *txq = netdev_get_tx_queue(dev, index);
	struct nupa_queue *q = &nupa->queues[index], *asked;
	u32 bufs;

	if (unlikely(nupa_failed(nupa)))
		return nupa_tx_drop(q, skb, NUPA_TXS_drops);
	if (nupa_tx_room(&q->tx) < q->tx.entries / 2)
		nupa_tx_reclaim(q);
	if (unlikely(nupa_tx_room(&q->tx) < NUPA_TX_PACKET_ENTRIES_MAX)) {
		nupa_tx_count(q, NUPA_TXS_busy, 1);
		WRITE_ONCE(q->tx.urgent, q->tx.prod);
		netif_txq_try_stop(txq, nupa_tx_room(&q->tx), NUPA_TX_WAKE_ENTRIES);
		napi_schedule(&q->napi);	/* cleans, and asks for an interrupt */
		return NETDEV_TX_BUSY;
	}
	if (unlikely(!nupa_tx_pull(skb)))
		return nupa_tx_drop(q, skb, NUPA_TXS_pull_errors);
	bufs = nupa_tx_map(q, skb);
	if (unlikely(!bufs))
		return nupa_tx_drop(q, skb, NUPA_TXS_map_errors);
	asked = nupa_tx_answers(q, skb);
	if (nupa_tx_publish(q, txq, skb, bufs, asked)) {
		nupa_tx_kick(q);
		if (nupa_rx_quiet(asked) && nupa_rx_due(asked))	/* now is the time for what was not urgent */
			napi_schedule(&asked->napi);
	}
	return NETDEV_TX_OK;
}

/* ---- memory ---- */

int nupa_tx_alloc(struct nupa_queue *q, u32 entries)
{
	struct nupa_txq *tx = &q->tx;

	tx->slots = kvcalloc(entries, sizeof(*tx->slots), GFP_KERNEL);
	if (!tx->slots)
		return -ENOMEM;
	tx->ring = dma_alloc_coherent(nupa_device(q->nupa), entries * sizeof(*tx->ring),
				      &tx->ring_dma, GFP_KERNEL);
	if (!tx->ring) {
		kvfree(tx->slots);
		return -ENOMEM;
	}
	tx->entries = entries;
	tx->prod = 0;
	tx->kicked = 0;
	tx->urgent = 0;
	tx->tail = 0;
	tx->parked = false;
	netdev_tx_reset_queue(netdev_get_tx_queue(q->nupa->netdev, q->index));
	return 0;
}

/* Packets the switch did not take are lost, as on any interface that goes down. */
static void nupa_tx_drop_all(struct nupa_queue *q)
{
	struct nupa_txq *tx = &q->tx;

	while (tx->tail != tx->prod) {
		struct nupa_tx_slot *slot = nupa_tx_slot(tx, tx->tail);

		nupa_tx_unmap(q, tx->tail + 1, slot->entries - 1);
		dev_kfree_skb_any(slot->skb);
		tx->tail += slot->entries;
	}
}

void nupa_tx_free(struct nupa_queue *q)
{
	struct nupa_txq *tx = &q->tx;

	if (!tx->entries)
		return;
	nupa_tx_drop_all(q);
	netdev_tx_reset_queue(netdev_get_tx_queue(q->nupa->netdev, q->index));
	dma_free_coherent(nupa_device(q->nupa), tx->entries * sizeof(*tx->ring), tx->ring,
			  tx->ring_dma);
	kvfree(tx->slots);
	tx->entries = 0;
}

int nupa_tx_create(struct nupa_queue *q)
{
	struct nupa_admin_cmd cmd = {
		.op = cpu_to_le16(NUPA_ADMIN_TXQ_CREATE),
		.id = cpu_to_le32(q->index),
		.queue.ring_addr = cpu_to_le64(q->tx.ring_dma),
		.queue.entries = cpu_to_le32(q->tx.entries),
	};

	if (q->nupa->tx_watch && q->nupa->features & NUPA_FEAT_WATCH)
		cmd.queue.flags = cpu_to_le32(NUPA_TXQ_F_WATCH);
	nupa_put(&q->tx.ctl->prod, 0);
	nupa_put(&q->tx.ctl->irq_event, 0);
	return nupa_admin_submit(q->nupa, &cmd, NULL);
}
