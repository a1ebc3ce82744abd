/* SPDX-License-Identifier: GPL-2.0 */
/*
 * softnic: two network interfaces on one wire, soft0 and soft1, whose "hardware"
 * places queue pair payload.  A second offload provider, written from
 * docs/offload-provider.md and tqp_offload.h alone.
 *
 * A frame is copied when it is sent, waits in the queue of the other NIC, and is
 * received by its NAPI: placed, delivered as any NIC would, or lost.  There is no
 * TSO, no merging, no ver 0 on transmit and no ICRC, and tcp_qp is told so.
 *
 * nic->lock guards the tables and is held while payload is stored, so a region or
 * a QP that was taken out of a table is not written any more.
 */
#ifndef SOFTNIC_H
#define SOFTNIC_H

#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <linux/skbuff.h>
#include <linux/u64_stats_sync.h>
#include <linux/xarray.h>
#include <net/tcp.h>
#include <tcp_qp/tcp_bth_option.h>
#include <tqp_offload.h>

enum {
	SNIC_COUNT = 2,
	SNIC_QUEUE_MAX = 4096,		/* frames that wait for NAPI */
	SNIC_HEADER_MAX_BYTES = 256,
	SNIC_BLOCKS = 16,		/* ranges beyond a hole, of one flow */
	SNIC_STARTS = 64,		/* messages whose start is remembered, of each kind */
	SNIC_SGE_MAX = 32,
	SNIC_PIECES_MAX = 128,		/* of memory, for one segment */
	SNIC_FLOW_BUCKETS = 256,
	SNIC_ACK_BEHIND_MAX_BYTES = 1 << 20,
};

/* Verdicts of the placement checks; each is counted. */
#define SNIC_VERDICTS(X) \
	X(placed) X(placed_before) X(deliver_no_payload) X(deliver_no_qp) X(deliver_checksum) \
	X(deliver_fragment) X(deliver_flags) X(deliver_no_option) X(deliver_window) X(deliver_seen) X(deliver_ack) \
	X(deliver_kind) X(deliver_icrc) X(deliver_start) X(deliver_unsynced) X(deliver_disorder) \
	X(deliver_no_receive) X(deliver_no_read) X(deliver_key) X(deliver_access) \
	X(deliver_bounds) X(deliver_order) X(drop_overtaken)

#define SNIC_STATS(X) \
	SNIC_VERDICTS(X) X(placed_bytes) X(tx_frames) X(rx_frames) X(rx_queue_full) \
	X(rx_no_memory) X(wire_lost) X(wire_duplicated) X(wire_held) X(wire_corrupted) X(wrong_order)

#define SNIC_STAT_ENUM(name) SNIC_S_##name,
enum snic_stat { SNIC_STATS(SNIC_STAT_ENUM) SNIC_S_COUNT };
#undef SNIC_STAT_ENUM

/* What of a flow's sequence space was passed up, placed or delivered. */
struct snic_seen {
	u32 mark;			/* everything before it was */
	bool resyncing;			/* more than the blocks hold: nothing is placed */
	u32 resync;			/* until the mark is here */
	u32 count;
	struct {
		u32 begin, end;
	} block[SNIC_BLOCKS];		/* in no order, apart from each other and from the mark */
};

/* What the host has yet to copy, and which WRITE's bytes are in memory. */
struct snic_order {
	bool copying;			/* the host has yet to copy what lies before copy_end */
	u32 copy_end;
	bool written;			/* bytes of a WRITE were placed */
	u32 latest;			/* where the last such WRITE starts */
};

struct snic_start {
	bool used;
	u16 msn;
	u32 start;
};

struct snic_mr {
	u32 key;
	u32 pd;
	int access;
	u64 iova;
	u64 bytes;
	u32 nr_pages;
	u8 page_shift;
	dma_addr_t pages[];
};

struct snic_qp {
	struct hlist_node node;
	u32 qpn;
	u32 pd;
	u32 flags;
	struct tqp_offload_flow flow;
	u8 wscale;
	bool synced;			/* no QP byte can have escaped the context */
	bool sent_known;
	u32 sent;			/* the host has sent everything before this */
	u32 acked;			/* the peer has acknowledged everything before this */
	u32 right_edge;			/* of the window that the host advertised */
	struct snic_seen seen;
	struct snic_order order;
	struct snic_start sends[SNIC_STARTS];
	struct snic_start responses[SNIC_STARTS];
	const struct tqp_offload_shadow *shadow;
	u32 rq_mask;
	u32 rq_base;
	u16 rq_sge_max;
	u8 rq_log2_bytes;
	u32 nr_rq_pages;
	dma_addr_t rq_pages[];
};

/* Where bytes of one segment go. */
struct snic_piece {
	const struct snic_mr *mr;
	u64 addr;
	u64 bytes;
};

struct snic_target {
	u32 count;
	struct snic_piece piece[SNIC_PIECES_MAX];
};

struct snic_nic {
	struct net_device *netdev;
	struct snic_nic *peer;
	struct napi_struct napi;
	struct sk_buff_head queue;	/* frames on their way here; its lock guards up and held */
	bool up;
	struct sk_buff *held;		/* a frame that the next ones overtake */
	struct snic_provider *provider;
	spinlock_t lock;
	struct xarray mrs;		/* key -> struct snic_mr */
	struct xarray qps;		/* qpn -> struct snic_qp */
	u32 nr_mrs, nr_qps;		/* under lock */
	struct hlist_head flows[SNIC_FLOW_BUCKETS];
	struct snic_target target;	/* under lock: too large for a stack */
	atomic64_t stats[SNIC_S_COUNT];
};

/* A frame's TCP header. */
struct snic_packet {
	struct tqp_offload_flow flow;	/* as the receiver sees it */
	bool fragment, first_fragment;
	bool checksum_good;
	u32 seq, ack;
	u16 window;
	const struct tcphdr *th;
	const u8 *options;
	u32 option_bytes;
	u32 header_bytes;		/* from the Ethernet header to the payload */
	const u8 *payload;
	u32 bytes;
};

static inline void snic_count(struct snic_nic *nic, enum snic_stat stat, u64 n)
{
	atomic64_add(n, &nic->stats[stat]);
}

/* ---- main.c ---- */
extern struct platform_device *snic_platform;	/* does the DMA */
extern struct page *snic_zero_page;		/* in place of placed payload */
/* DMA here is memory at its own address: main.c makes sure. */
void *snic_memory(dma_addr_t addr);

/* ---- netdev.c ---- */
struct net_device *snic_netdev_create(u32 number);

/* ---- wire.c ---- */
/* @frame goes to @nic, if the wire lets it.  Takes the frame. */
void snic_wire_carry(struct snic_nic *nic, struct sk_buff *frame);
/* The next frame of @nic's queue, or NULL. */
struct sk_buff *snic_wire_take(struct snic_nic *nic);
void snic_wire_open(struct snic_nic *nic, bool open);

/* ---- offload.c ---- */
int snic_offload_add(struct snic_nic *nic);
void snic_offload_remove(struct snic_nic *nic);
struct snic_qp *snic_qp_of(struct snic_nic *nic, const struct tqp_offload_flow *flow);

/* ---- packet.c ---- */
/* False: no TCP over plain IPv4 or IPv6. */
bool snic_packet_parse(const struct sk_buff *frame, struct snic_packet *packet);
/* The same connection, seen from its other end. */
struct tqp_offload_flow snic_flow_reversed(const struct tqp_offload_flow *flow);

/* ---- memory.c ---- */
bool snic_rq_posted(const struct snic_qp *qp, u16 msn);
struct snic_wqe {
	u32 num_sge;
	struct {
		u64 addr;
		u32 length;
		u32 lkey;
	} sge[SNIC_SGE_MAX];
};
/* The receive of @msn, copied once.  False: it is not one that the queue may have. */
bool snic_rq_read(const struct snic_qp *qp, u16 msn, struct snic_wqe *wqe);
/* Does a READ wait for response @msn into just this memory? */
bool snic_read_waits(const struct snic_qp *qp, u16 msn, u64 va, u32 key, u32 length);
/* Everything before @seq has been copied by the host. */
bool snic_consumed(const struct snic_qp *qp, u32 seq);
void snic_fill(const struct snic_target *target, const u8 *payload);

/* ---- seen.c ---- */
bool snic_seen_overlaps(const struct snic_seen *seen, u32 seq, u32 end);
void snic_seen_record(struct snic_seen *seen, u32 seq, u32 end);
void snic_seen_raise(struct snic_seen *seen, u32 seq);
/* Up to @seq there may be bytes that nobody saw. */
void snic_seen_distrust(struct snic_seen *seen, u32 seq);

/* ---- order.c ---- */
void snic_order_settle(struct snic_order *order, const struct snic_qp *qp);
void snic_order_delivered(struct snic_order *order, u32 end);
void snic_order_written(struct snic_order *order, u32 start);
/* May a WRITE's bytes be stored, if nothing before it is missing? */
bool snic_order_allows(const struct snic_order *order);
/* Is there a later WRITE in memory than the bytes up to @end? */
bool snic_order_overtaken(const struct snic_order *order, u32 end);

/* ---- place.c ---- */
/* What becomes of a received frame; nic->lock is taken. */
enum snic_stat snic_place(struct snic_nic *nic, const struct snic_packet *packet);
/* A frame that the host sends: its ACKs and its window. */
void snic_watch(struct snic_nic *nic, const struct snic_packet *packet);

#endif
