/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A queue pair of the netdev: transmit ring, receive ring, NAPI, vector.
 *
 * Indices run freely and are masked at use, as in nupa_hw.h.  What the switch
 * writes (cons, comp_prod, completions) is read once and checked; a value no
 * correct switch can write fails the port.
 */
#ifndef NUPA_QUEUE_H
#define NUPA_QUEUE_H

#include <linux/netdevice.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/u64_stats_sync.h>
#include <net/netmem.h>
#include <net/page_pool/types.h>
#include <tcp_qp/nupa_hw.h>

enum {
	NUPA_TX_PACKET_ENTRIES_MAX = 1 + NUPA_TX_FRAGS_MAX,
	NUPA_TX_STOP_ENTRIES = NUPA_TX_PACKET_ENTRIES_MAX,
	NUPA_TX_WAKE_ENTRIES = 2 * NUPA_TX_PACKET_ENTRIES_MAX,
	NUPA_TX_ALONE_MAX_BYTES = 512,
	NUPA_TX_ALONE_PACKETS = 2,	/* under way before it: of who answers before TCP hears of the question */
	NUPA_TX_ALONE_LATER = 10,	/* ... and where both ends hear of several questions at once */
	NUPA_TX_PULL_BYTES = 128,	/* of a packet whose header length nobody noted */
	NUPA_RX_PUBLISH_PACKETS = 32,	/* tell the switch at least this often */
	NUPA_RX_REFILL_MIN = 32,
	NUPA_RX_LONG_REFILL_MIN = 4,
	NUPA_RX_RETRY_MS = 10,		/* after a failed refill */
	NUPA_RX_LATER_MAX = 5,		/* completions that are quiet, and wait for another one although somebody sent */
	NUPA_RX_LATER_SHARE = 8,	/* of the hold time: they wait no longer */
	NUPA_RX_PASSED_MS = 100,
	NUPA_RX_PASSED_LOOK_US = 50,
	NUPA_RX_JOIN_MAX = 16,		/* completions in one skb */
};

#define NUPA_TX_STATS(X) \
	X(packets) X(bytes) X(drops) X(map_errors) X(pull_errors) X(busy) X(doorbells) X(pure_acks)
#define NUPA_RX_STATS(X) \
	X(packets) X(bytes) X(drops) X(invalid) X(alloc_failures) X(csum_bad) X(merged_packets) X(joined_packets) \
	X(placed_packets) X(placed_bytes) X(qp_packets) X(polls) \
	X(long_buffers) X(long_alloc_failures) \
	X(device_bytes) X(device_drops) X(urgent_cleared)

#define NUPA_Q_TX_ENUM(name) NUPA_TXS_##name,
enum nupa_tx_stat { NUPA_TX_STATS(NUPA_Q_TX_ENUM) NUPA_TXS_COUNT };
#undef NUPA_Q_TX_ENUM
#define NUPA_Q_RX_ENUM(name) NUPA_RXS_##name,
enum nupa_rx_stat { NUPA_RX_STATS(NUPA_Q_RX_ENUM) NUPA_RXS_COUNT };
#undef NUPA_Q_RX_ENUM

struct nupa_tx_stats {
	struct u64_stats_sync syncp;
	u64_stats_t v[NUPA_TXS_COUNT];
};

struct nupa_rx_stats {
	struct u64_stats_sync syncp;
	u64_stats_t v[NUPA_RXS_COUNT];
};

/* Shadow of one ring entry: the packet (context entry) or one mapping. */
struct nupa_tx_slot {
	struct sk_buff *skb;		/* context entry */
	dma_addr_t addr;		/* buffer entry */
	u32 bytes;			/* buffer: mapped here, 0: by a dma-buf's exporter; context: reported to BQL */
	u32 entries;			/* context: entries of the packet */
};

struct nupa_txq {
	struct nupa_ring_ctl *ctl;
	union nupa_tx_entry *ring;
	struct nupa_tx_slot *slots;
	dma_addr_t ring_dma;
	u32 entries;			/* 0: not allocated */

	/* producer */
	u32 prod ____cacheline_aligned_in_smp;
	u32 kicked;			/* prod when the doorbell was last considered */
	u32 urgent;			/* end of the last packet whose completion matters */

	/* consumer */
	spinlock_t clean_lock ____cacheline_aligned_in_smp;
	u32 tail;
	bool parked;			/* no interrupt was asked for: only pure ACKs wait */
};

struct nupa_dev;

/* A fill ring: buffers of one size, each a page of its pool, or of device memory. */
struct nupa_fill {
	const struct nupa_dev *nupa;
	struct nupa_rx_fill *ring;
	netmem_ref *mems;		/* [index & mask] */
	struct page_pool *pool;
	__le32 *shown;			/* where the switch reads prod */
	dma_addr_t dma;
	u32 entries;			/* 0: not allocated */
	u32 buf_bytes;
	u32 mem_bytes;			/* what a buffer takes of memory */
	bool device;			/* device memory, which no CPU reads; there may be less than asked for */
	bool beyond;			/* ... and some of it is where the switch can't reach */

	u32 prod;
	u32 cons;			/* first buffer the switch may still write */
	unsigned long again;		/* jiffies: after a failure, nothing is asked for before */
};

struct nupa_rxq {
	struct nupa_rxq_ctl *ctl;
	struct nupa_rx_comp *comp;
	u8 *header_slots;
	dma_addr_t comp_dma, header_dma;
	u32 entries;			/* of completions; 0: not allocated */
	u32 comp_cons;
	u32 woken;			/* completions before this have woken who slept */
	u32 later_cons;			/* what is quiet waits from here on ... */
	u32 later_us;			/* ... since then, in 1024 ns */
	bool strict;			/* TCP payload is never in a header slot (tcp-data-split) */
	bool ran;			/* the switch has had these rings before */
	struct nupa_fill fill;
	struct nupa_fill longs;		/* for long runs; it may have no entries, or no buffers in them */
};

struct nupa_queue {
	struct nupa_dev *nupa;
	struct napi_struct napi;
	u16 index;
	bool listed;			/* NAPI was added */
	bool irq_held;
	char irq_name[32];
	unsigned long irqs;
	struct nupa_txq tx;
	struct nupa_rxq rx;
	struct timer_list rx_retry;
	struct nupa_tx_stats tx_stats;
	struct nupa_rx_stats rx_stats;
};

/* One completion, copied from the ring and in host order. */
struct nupa_rx_desc {
	u16 flags;
	u16 bufs;
	u16 long_bufs;
	u16 header_bytes;
	u16 gso_size;
	u16 gso_segs;
	u32 payload_bytes;
	u32 hash;
	u32 qpn;
	bool joined;			/* several completions; not from the ring */
	u32 seq;			/* where they begin */
};

static inline u16 nupa_queue_vector(const struct nupa_queue *q)
{
	return 1 + q->index;
}

static inline void nupa_tx_count(struct nupa_queue *q, enum nupa_tx_stat stat, u64 n)
{
	u64_stats_update_begin(&q->tx_stats.syncp);
	u64_stats_add(&q->tx_stats.v[stat], n);
	u64_stats_update_end(&q->tx_stats.syncp);
}

static inline void nupa_rx_count(struct nupa_queue *q, enum nupa_rx_stat stat, u64 n)
{
	u64_stats_update_begin(&q->rx_stats.syncp);
	u64_stats_add(&q->rx_stats.v[stat], n);
	u64_stats_update_end(&q->rx_stats.syncp);
}

/* ---- queue.c; the netdev's lock ---- */
int nupa_queues_init(struct nupa_dev *nupa);
void nupa_queues_exit(struct nupa_dev *nupa);
int nupa_queues_alloc(struct nupa_dev *nupa);
void nupa_queues_free(struct nupa_dev *nupa);
int nupa_queues_start(struct nupa_dev *nupa);	/* NAPI, vectors; after create: before it BAR2 holds old indices */
void nupa_queues_stop(struct nupa_dev *nupa);	/* after it nothing of ours touches a ring */
int nupa_queues_create(struct nupa_dev *nupa);	/* in the switch */
int nupa_queues_destroy(struct nupa_dev *nupa);	/* 0: the switch let go of their memory */
void nupa_queues_kick(struct nupa_dev *nupa);
void nupa_queue_kick(struct nupa_queue *q);

/* ---- tx.c ---- */
int nupa_tx_alloc(struct nupa_queue *q, u32 entries);
void nupa_tx_free(struct nupa_queue *q);
int nupa_tx_create(struct nupa_queue *q);
netdev_tx_t nupa_tx_xmit(struct sk_buff *skb, struct net_device *dev);
void nupa_tx_poll(struct nupa_queue *q, int budget);
bool nupa_tx_arm(struct nupa_queue *q);		/* true: poll again */
void nupa_tx_disarm(struct nupa_queue *q);	/* hard irq: NAPI will run anyway */
/* Packets wait, and none was completed since @cons */
bool nupa_tx_stuck(struct nupa_queue *q);

/* ---- rx_fill.c; in NAPI, or while it does not run ---- */
int nupa_fill_alloc(struct nupa_queue *q, struct nupa_fill *f, u32 entries, u32 buf_bytes,
		    bool may_be_device);
/*
 * @quiet: the switch let go of the memory.  If it did not (it is hung, not
 * gone), everything it may still write is given up rather than reused.
 */
void nupa_fill_free(struct nupa_dev *nupa, struct nupa_fill *f, bool quiet);
/* False: no memory; some entries stay empty. */
bool nupa_fill_ring(struct nupa_fill *f, gfp_t gfp);	/* the switch is not told */
bool nupa_fill_up(struct nupa_fill *f, gfp_t gfp);
void nupa_fill_show(struct nupa_fill *f, __le32 *shown);	/* ... and now it is, here and from here on */
netmem_ref nupa_fill_take(struct nupa_fill *f);	/* the next one the switch has used */
/* @napi: called from our own, so the pool's lockless cache may take them. */
void nupa_fill_drop(struct nupa_fill *f, u32 bufs, bool napi);

static inline u32 nupa_fill_waiting(const struct nupa_fill *f)
{
	return f->prod - f->cons;
}

/* ---- rx_mem.c ---- */
/* Rings and buffers of @q, into @rx, which may be another than q->rx while that runs. */
int nupa_rx_alloc(struct nupa_queue *q, struct nupa_rxq *rx);
void nupa_rx_free(struct nupa_dev *nupa, struct nupa_rxq *rx, bool quiet);
int nupa_rx_create(struct nupa_queue *q);	/* in the switch */

/* ---- queue_mgmt.c ---- */
void nupa_queue_mgmt_init(struct net_device *dev);
/* Is device memory bound to one of its queues?  The netdev's lock. */
bool nupa_device_memory_bound(struct nupa_dev *nupa);

/* ---- rx.c, rx_skb.c ---- */
void nupa_rx_retry(struct timer_list *timer);
int nupa_rx_poll(struct nupa_queue *q, int budget);
bool nupa_rx_arm(struct nupa_queue *q);		/* true: poll again */
/* All that came was completed by the switch, and TCP need not hear of it yet; any context. */
bool nupa_rx_quiet(const struct nupa_queue *q);
bool nupa_rx_is_empty(const struct nupa_queue *q);	/* any context */
/* What had come before the call is with the stack; false: not yet at @until.  In a task. */
bool nupa_rx_passed(struct nupa_queue *q, unsigned long until);
/* Of what is quiet: is it so much, or so old, that TCP should hear of it?  Else the switch knows that it was seen. */
bool nupa_rx_due(struct nupa_queue *q);
/* Has that been so lately?  Then acknowledgements come late, by so many packets at each end. */
static inline bool nupa_rx_later(const struct nupa_queue *q)
{
	return READ_ONCE(q->rx.comp_cons) - READ_ONCE(q->rx.later_cons) <= 2 * NUPA_RX_LATER_MAX;
}

void nupa_rx_wake(struct nupa_queue *q);	/* who slept until that came; hard irq */
bool nupa_tx_done(struct nupa_queue *q);	/* what was awaited; hard irq */
void nupa_rx_quiesce(struct nupa_queue *q);
/* Builds the skb of a checked completion; takes its buffers in any case.  NULL: dropped, counted. */
struct sk_buff *nupa_rx_skb(struct nupa_queue *q, const struct nupa_rx_desc *desc, const u8 *header);
/* False: counted as invalid, but the rings stay in step.  *@fatal: they do not. */
bool nupa_rx_check(struct nupa_queue *q, const struct nupa_rx_desc *desc, bool *fatal);
void nupa_rx_drop_bufs(struct nupa_queue *q, const struct nupa_rx_desc *desc);

/* ---- rx_join.c ---- */
/* @desc, and the header that goes with it, and what follows: true if they are one packet, with @next_header, from now on. */
bool nupa_rx_join(struct nupa_rx_desc *desc, const u8 *header, const struct nupa_rx_desc *next,
		  const u8 *next_header);
void nupa_rx_set_joined(struct sk_buff *skb, const struct nupa_rx_desc *desc);

/* ---- rx_strict.c ---- */
/* Of a queue whose payload may be in device memory, before it is merged; false: counted, and not to be delivered. */
bool nupa_rx_strict(struct nupa_queue *q, struct sk_buff *skb, const struct nupa_rx_desc *desc);

#endif
