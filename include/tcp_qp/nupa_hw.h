/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * nupa_hw: the ABI between the NUPA switch and the driver of one of its ports.
 *
 * A port is a stock QEMU ivshmem-doorbell PCI device (1af4:1110):
 *   BAR0  doorbell register at 12: write (NUPA_PEER_SWITCH << 16 | vector)
 *   BAR2  shared memory, one per port: registers, then queue control blocks
 *   MSI-X vector 0: admin and link events; vector 1 + q: queue pair q
 * Rings lie in host memory; the switch reaches them by DMA with the addresses
 * it was given.  All shared fields are little endian.
 *
 * Doorbells and interrupts use event indices: the producer of entries signals
 * only when its index moves past the event index that the other side wrote
 * (nupa_need_event()).  Ring indices run freely over 32 bits and are masked at
 * use; a ring's size is a power of two.
 *
 * The switch need not move a transmit ring's event along while it looks at prod
 * itself (NUPA_TXQ_F_WATCH): no doorbell is rung then.  Before it stops looking it
 * writes db_event, has a full barrier, and reads prod; a host writes prod, has a
 * full barrier, and reads db_event.  So one of them sees what the other wrote.
 *
 * Who writes what is said by the structures: each control block has one cache
 * line per writer.  Nothing the other side wrote is used before it was copied
 * once and checked.
 */
#ifndef TCP_QP_NUPA_HW_H
#define TCP_QP_NUPA_HW_H

#ifdef __KERNEL__
#include <linux/types.h>
#include <linux/build_bug.h>
#else
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#define NUPA_STATIC_ASSERT(c, m) static_assert(c, m)
#else
#define NUPA_STATIC_ASSERT(c, m) _Static_assert(c, m)
#endif

enum {
	NUPA_PCI_VENDOR = 0x1af4,
	NUPA_PCI_DEVICE = 0x1110,
	NUPA_BAR0_IVPOSITION = 8,
	NUPA_BAR0_DOORBELL = 12,
	NUPA_PEER_SWITCH = 0,		/* ivshmem id of the switch */
	NUPA_PEER_HOST = 1,		/* ivshmem id of the host behind the port */

	NUPA_MAGIC = 0x4150554e,	/* "NUPA" */
	NUPA_ABI_MAJOR = 4,		/* must be equal */
	NUPA_ABI_MINOR = 9,		/* may grow; features say what is there */

	NUPA_QUEUE_PAIRS_MAX = 16,
	NUPA_VECTORS = 1 + NUPA_QUEUE_PAIRS_MAX,
	NUPA_BAR2_BYTES = 1 << 16,
	NUPA_BAR2_ADMIN_AT = 0x400,	/* struct nupa_admin_ctl */
	NUPA_BAR2_TXQ_AT = 0x1000,	/* struct nupa_ring_ctl[NUPA_QUEUE_PAIRS_MAX] */
	NUPA_BAR2_RXQ_AT = 0x3000,	/* struct nupa_rxq_ctl[NUPA_QUEUE_PAIRS_MAX] */

	NUPA_ADMIN_ENTRIES = 64,
	NUPA_RING_ENTRIES_MIN = 64,
	NUPA_RING_ENTRIES_MAX = 16384,
	NUPA_TX_FRAGS_MAX = 18,		/* linear head + MAX_SKB_FRAGS */
	NUPA_TX_HEADER_MAX_BYTES = 256,
	NUPA_TSO_MAX_BYTES = 1088 << 10,	/* headers and payload of one transmit packet: 1 MiB and room */
	NUPA_PLACED_RUN_MAX_BYTES = 1088 << 10,	/* headers and payload of one placed completion */
	NUPA_RX_HOLD_MAX_US = 10000,
	NUPA_RX_SLOT_BYTES = 256,	/* header slot of one receive completion */
	NUPA_RX_BUF_MIN_BYTES = 2048,
	NUPA_RX_BUF_MAX_BYTES = 64 << 10,
	NUPA_RX_BUFS_PER_PACKET_MAX = 17,	/* of both rings together */
	NUPA_RX_RUN_MAX_BYTES = 1088 << 10,	/* of nupa_cmd_rx_mode.run4_max_bytes: as many of the largest buffers */
	NUPA_MTU_MIN = 68,
	NUPA_MTU_MAX = 9000,
	NUPA_RSS_KEY_BYTES = 40,
	NUPA_RSS_TABLE_ENTRIES = 128,
	NUPA_STEER_RULES_MAX = 1024,
	NUPA_MR_PAGES_MAX = 1 << 20,	/* page table entries of one MR */
	NUPA_RQ_PAGES_MAX = 4096,	/* pages of one receive queue ring */
	NUPA_SRQ_BURST_MAX_BYTES = 256 << 10,	/* payload of a packet that the switch places in an SRQ's buffers */
	NUPA_CQE_BYTES = 64,
	NUPA_CQ_PAGES_MAX = 1 << 15,	/* pages of one completion queue ring */
	NUPA_POST_PAGES_MAX = 4096,	/* of struct nupa_post (nupa_post_hw.h) */
	NUPA_POST_PAGE_BYTES = 4096,
	NUPA_SGE_MAX = 32,
	NUPA_WINDOWS_MAX = 4,
	NUPA_ADMIN_TIMEOUT_MS = 5000,
	NUPA_BEAT_MS = 2000,		/* between two heartbeats: a wake-up of an idle switch */
};

/* struct nupa_regs.features: what the switch can do; the host turns on a subset */
enum {
	NUPA_FEAT_CSUM = 1 << 0,	/* transmit and receive checksums */
	NUPA_FEAT_TSO4 = 1 << 1,
	NUPA_FEAT_TSO6 = 1 << 2,
	NUPA_FEAT_GRO_HW = 1 << 3,
	NUPA_FEAT_RSS = 1 << 4,
	NUPA_FEAT_STEER = 1 << 5,	/* exact-match flow steering */
	NUPA_FEAT_HDR_SPLIT = 1 << 6,
	NUPA_FEAT_QP = 1 << 7,		/* QP contexts, MR table, placement */
	NUPA_FEAT_BTH_V0 = 1 << 8,	/* the segment cutter writes tcp_bth ver 0 */
	NUPA_FEAT_BIG_TCP = 1 << 9,	/* IPv4 bursts above 64 KiB, tot_len 0 */
	NUPA_FEAT_RX_HOLD = 1 << 10,	/* nupa_cmd_rx_mode.hold_us */
	NUPA_FEAT_BEAT = 1 << 11,	/* nupa_regs.beat */
	NUPA_FEAT_RX_LONG = 1 << 12,	/* long fill buffers, nupa_cmd_rx_mode.run4_max_bytes */
	NUPA_FEAT_WINDOW = 1 << 13,	/* memory of other devices of the host, since 4.2 */
	NUPA_FEAT_STREAM = 1 << 14,	/* NUPA_QP_F_STREAM, since 4.3 */
	NUPA_FEAT_WATCH = 1 << 15,	/* NUPA_TXQ_F_WATCH, since 4.4 */
	NUPA_FEAT_COMPLETE = 1 << 16,	/* CQ_CREATE, NUPA_QP_F_COMPLETE, since 4.5 */
	NUPA_FEAT_QUIET = 1 << 17,	/* NUPA_CQ_F_WAITING, nupa_rxq_ctl.signalled, since 4.6 */
	NUPA_FEAT_SRQ = 1 << 18,	/* SRQ_CREATE, NUPA_QP_F_SRQ, since 4.7 */
	NUPA_FEAT_SENDS = 1 << 19,	/* NUPA_QP_F_SENDS, since 4.8 */
	NUPA_FEAT_LATER = 1 << 20,	/* NUPA_RX_F_COMPLETED, nupa_rxq_ctl.seen and hurry, nupa_qp_shadow.later, since 4.9 */
};

/* struct nupa_regs.status, switch to host */
enum {
	NUPA_STATUS_READY = 1 << 0,	/* the switch serves this port */
	NUPA_STATUS_LINK_UP = 1 << 1,
	NUPA_STATUS_FAILED = 1 << 2,	/* the host broke the ABI: port stopped, reset it */
	NUPA_STATUS_GONE = 1 << 3,	/* the switch has ended: it touches no memory and answers nothing */
};

/* struct nupa_regs.control, host to switch; rung on vector 0 */
enum {
	NUPA_CONTROL_ENABLE = 1 << 0,	/* clearing it is a reset: all queues, MRs and QPs are gone when ready reads 0 */
};

/*
 * BAR2 offset 0, written by the switch.  What it says does not change but for
 * status, reset_ack, event_seq and beat; with each beat and each reset it is all
 * written anew, should the host have written over it.
 */
struct nupa_regs {
	__le32 magic;
	__le16 abi_major;
	__le16 abi_minor;
	__le32 features;
	__le32 status;		/* NUPA_STATUS_* */
	__u8 mac[6];
	__le16 queue_pairs;	/* 1 .. NUPA_QUEUE_PAIRS_MAX */
	__le32 link_mbps;
	__le32 mtu_max;
	__le32 qps_max;
	__le32 mrs_max;
	__le32 reset_ack;	/* equals control_gen once that reset or enable took effect */
	__le32 event_seq;	/* grows with every status change; then vector 0 */
	__le16 port_id;
	__le16 reserved16;
	__le32 beat;		/* grows every NUPA_BEAT_MS while the switch lives */
	__u8 reserved[72];
	/* written by the host */
	__le32 control;		/* NUPA_CONTROL_* */
	__le32 control_gen;	/* host adds one with each change of control, then rings vector 0 */
	__u8 reserved_host[120];
};

/*
 * One ring of entries that the host produces and the switch consumes
 * (transmit, admin).  An index names the next entry.
 */
struct nupa_ring_ctl {
	/* host */
	__le32 prod;
	__le32 irq_event;	/* interrupt when cons moves past this */
	__u8 pad_host[56];
	/* switch */
	__le32 cons;		/* entries done: their memory is the host's again */
	__le32 db_event;	/* doorbell when prod moves past this */
	__u8 pad_switch[56];
};

/* Receive: buffers go down (fill, and long ones), completions come up (comp). */
struct nupa_rxq_ctl {
	/* host */
	__le32 fill_prod;
	__le32 comp_cons;
	__le32 irq_event;	/* interrupt when comp_prod moves past this */
	__le32 long_prod;	/* of the ring of long buffers, where the queue has one */
	__le32 seen;		/* what is quiet and before this was looked at, and is taken later (NUPA_FEAT_LATER) */
	__u8 pad_host[44];
	/* switch */
	__le32 fill_cons;
	__le32 comp_prod;
	__le32 long_cons;
	__le32 signalled;	/* what comes from here on brings no interrupt yet (NUPA_FEAT_QUIET) */
	__le32 hurry;		/* what comes from here on may wait for others, although somebody sends (NUPA_FEAT_LATER) */
	__u8 pad_switch[44];
};

struct nupa_admin_ctl {
	struct nupa_ring_ctl ring;	/* prod, db_event; cons, irq_event */
	/* host: where the admin ring is, valid before NUPA_CONTROL_ENABLE */
	__le64 ring_addr;		/* struct nupa_admin_cmd[NUPA_ADMIN_ENTRIES] */
	__le64 comp_addr;		/* struct nupa_admin_comp[NUPA_ADMIN_ENTRIES], same index as its command */
	__u8 reserved[48];
};

NUPA_STATIC_ASSERT(sizeof(struct nupa_regs) == 256, "nupa_regs");
NUPA_STATIC_ASSERT(offsetof(struct nupa_regs, control) == 128, "nupa_regs.control");
NUPA_STATIC_ASSERT(sizeof(struct nupa_ring_ctl) == 128, "nupa_ring_ctl");
NUPA_STATIC_ASSERT(sizeof(struct nupa_rxq_ctl) == 128, "nupa_rxq_ctl");
NUPA_STATIC_ASSERT(sizeof(struct nupa_admin_ctl) == 192, "nupa_admin_ctl");

/*
 * Transmit.  A packet is one context entry and then 1 .. NUPA_TX_FRAGS_MAX
 * buffer entries, contiguous in the ring (modulo its size).  All headers of
 * the packet lie in its first buffer.
 */
enum {
	NUPA_TX_F_CSUM = 1 << 0,	/* fill the checksum at csum_start + csum_offset */
	NUPA_TX_F_TSO4 = 1 << 1,	/* cut at mss; implies CSUM */
	NUPA_TX_F_TSO6 = 1 << 2,
	NUPA_TX_F_ECN = 1 << 3,		/* CWR on the first segment only */
};

struct nupa_tx_ctx {			/* first entry of a packet */
	__le16 flags;			/* NUPA_TX_F_* */
	__le16 bufs;			/* buffer entries that follow */
	__le32 bytes;			/* sum of their lengths */
	__le16 mss;			/* payload bytes per segment, TSO only */
	__le16 header_bytes;		/* Ethernet + IP + TCP header, TSO only */
	__le16 csum_start;		/* from the start of the packet */
	__le16 csum_offset;
};

struct nupa_tx_buf {
	__le64 addr;
	__le32 bytes;			/* > 0 */
	__le32 reserved;
};

union nupa_tx_entry {
	struct nupa_tx_ctx ctx;
	struct nupa_tx_buf buf;
};
NUPA_STATIC_ASSERT(sizeof(union nupa_tx_entry) == 16, "nupa_tx_entry");

/*
 * Receive.  A queue has a ring of buffers of buf_bytes each and, if its host
 * wishes (NUPA_FEAT_RX_LONG), one of long_buf_bytes each.  Those of each ring
 * are used strictly in its order.
 */
struct nupa_rx_fill {
	__le64 addr;
};

enum {
	NUPA_RX_F_CSUM_OK = 1 << 0,	/* IP and TCP/UDP checksums verified */
	NUPA_RX_F_CSUM_BAD = 1 << 1,
	NUPA_RX_F_TCP4 = 1 << 2,
	NUPA_RX_F_TCP6 = 1 << 3,
	NUPA_RX_F_HASH_L4 = 1 << 4,	/* hash covers ports */
	NUPA_RX_F_PLACED = 1 << 5,	/* payload went to a QP buffer: bufs == 0, payload_bytes placed */
	NUPA_RX_F_QP = 1 << 6,		/* flow has a QP context; the host must not merge it in software */
	NUPA_RX_F_STREAM = 1 << 7,	/* that context is a stream's; PLACED: where a struct nupa_post says */
	NUPA_RX_F_WAKE = 1 << 8,	/* somebody may have slept until it was completed, in @cq */
	NUPA_RX_F_COMPLETED = 1 << 9,	/* PLACED, and before the shadow's done (NUPA_FEAT_LATER) */
};

/*
 * The header slot of completion i is NUPA_RX_SLOT_BYTES at slot_addr + (i &
 * mask) * NUPA_RX_SLOT_BYTES.  It holds header_bytes of packet; the other
 * payload_bytes lie in the next long_bufs long buffers and after them in the
 * next bufs others, each full but for the last of all, or were placed.  A
 * packet without payload buffers is whole in its slot.
 * A merged packet (gso_segs > 1) has the header of its first segment, with IP
 * total length (zero above 65535), FIN and PSH and the tcp_bth position set
 * for the whole; its checksum field is not valid.
 */
struct nupa_rx_comp {
	__le16 flags;			/* NUPA_RX_F_* */
	__le16 bufs;			/* buffers of buf_bytes used */
	__le16 header_bytes;
	__le16 gso_size;		/* payload bytes of each merged segment but the last; 0: not merged */
	__le16 gso_segs;
	__le16 long_bufs;		/* buffers of long_buf_bytes used, before those of buf_bytes */
	__le32 payload_bytes;
	__le32 hash;
	__le32 qpn;			/* with NUPA_RX_F_QP */
	__le32 cq;			/* with NUPA_RX_F_WAKE */
	__le32 reserved;
};
NUPA_STATIC_ASSERT(sizeof(struct nupa_rx_comp) == 32, "nupa_rx_comp");

/* Admin.  Commands complete in order; a completion is valid once cons passed it. */
enum nupa_admin_op {
	NUPA_ADMIN_NOP = 0,
	NUPA_ADMIN_TXQ_CREATE,		/* queue */
	NUPA_ADMIN_TXQ_DESTROY,
	NUPA_ADMIN_RXQ_CREATE,		/* queue */
	NUPA_ADMIN_RXQ_DESTROY,
	NUPA_ADMIN_RX_MODE,		/* rx_mode */
	NUPA_ADMIN_RSS,			/* rss */
	NUPA_ADMIN_STEER_ADD,		/* steer */
	NUPA_ADMIN_STEER_DEL,
	NUPA_ADMIN_STATS,		/* stats */
	NUPA_ADMIN_MR_REG,		/* mr */
	NUPA_ADMIN_MR_DEREG,
	NUPA_ADMIN_QP_CREATE,		/* qp */
	NUPA_ADMIN_QP_DESTROY,
	NUPA_ADMIN_QP_STATS,		/* stats, id = qpn */
	NUPA_ADMIN_WINDOW_SET,		/* window, id below NUPA_WINDOWS_MAX */
	NUPA_ADMIN_WINDOW_CLEAR,
	NUPA_ADMIN_CQ_CREATE,		/* cq */
	NUPA_ADMIN_CQ_DESTROY,
	NUPA_ADMIN_SRQ_CREATE,		/* srq */
	NUPA_ADMIN_SRQ_DESTROY,
	NUPA_ADMIN_OP_COUNT,
};

enum nupa_admin_status {
	NUPA_OK = 0,
	NUPA_E_OPCODE,
	NUPA_E_INVALID,			/* a field is out of range or a reserved one not zero */
	NUPA_E_EXISTS,
	NUPA_E_NOENT,
	NUPA_E_NOSPACE,			/* a table is full */
	NUPA_E_ADDRESS,			/* an address is not host memory */
	NUPA_E_QUOTA,			/* this port's share of the switch's memory is used up */
	NUPA_E_STATUS_COUNT,
};

struct nupa_cmd_queue {			/* TXQ_CREATE, RXQ_CREATE; id = queue pair */
	__le64 ring_addr;		/* union nupa_tx_entry[] or struct nupa_rx_fill[] */
	__le64 comp_addr;		/* RX: struct nupa_rx_comp[] */
	__le64 slot_addr;		/* RX: header slots, one per completion */
	__le32 entries;			/* of the transmit or fill ring */
	__le32 comp_entries;		/* RX */
	__le32 buf_bytes;		/* RX: of every fill buffer */
	__le32 flags;			/* RX: NUPA_RXQ_F_*, TX: NUPA_TXQ_F_* */
	__le64 long_ring_addr;		/* RX: struct nupa_rx_fill[] */
	__le32 long_entries;		/* RX: 0: no long buffers, and the two fields beside it are 0 */
	__le32 long_buf_bytes;		/* RX: more than buf_bytes */
};

enum {
	NUPA_RXQ_F_STRICT_SPLIT = 1 << 0,	/* TCP payload never in a header slot (devmem TCP) */
};

enum {
	NUPA_TXQ_F_WATCH = 1 << 0,	/* prod may be looked at without a doorbell, as long as the switch likes */
};

enum {
	NUPA_RX_MODE_PROMISC = 1 << 0,
	NUPA_RX_MODE_ALLMULTI = 1 << 1,
	NUPA_RX_MODE_GRO = 1 << 2,
	NUPA_RX_MODE_CSUM = 1 << 3,
};

/*
 * A run of placed payload may stay open for more of the same message, as long
 * as its sender goes on: up to @hold_us after each segment, and eight times
 * that in all.  It is completed at once with PSH, at its message's end, with a
 * hole before it, with a congestion mark, or when half of the host's window or
 * of what the sender sends without an acknowledgement is used up.
 */
struct nupa_cmd_rx_mode {
	__le32 flags;			/* NUPA_RX_MODE_* */
	__le32 mtu;
	__u8 mac[6];			/* unicast address to accept */
	__le16 hold_us;			/* at most NUPA_RX_HOLD_MAX_US; 0: never */
	/*
	 * Of a delivered IPv4 run, IP header and payload: at most
	 * NUPA_RX_RUN_MAX_BYTES; 0: what a total length of 16 bits can say.
	 */
	__le32 run4_max_bytes;
};

struct nupa_cmd_rss {
	__u8 key[NUPA_RSS_KEY_BYTES];	/* Toeplitz */
	__le64 table_addr;		/* __u8[NUPA_RSS_TABLE_ENTRIES] of queue pair numbers, copied */
};

struct nupa_flow {			/* one direction of a TCP connection, as the host receives it */
	__u8 family;			/* 4 or 6 */
	__u8 reserved[3];
	__be16 sport;
	__be16 dport;
	__u8 saddr[16];			/* IPv4: the first four bytes, the rest zero */
	__u8 daddr[16];
};
NUPA_STATIC_ASSERT(sizeof(struct nupa_flow) == 40, "nupa_flow");

struct nupa_cmd_steer {			/* id = rule number */
	struct nupa_flow flow;
	__le16 queue;
	__le16 wildcards;		/* NUPA_STEER_ANY_* */
	__le32 reserved;
};

enum {
	NUPA_STEER_ANY_SPORT = 1 << 0,
	NUPA_STEER_ANY_SADDR = 1 << 1,
	NUPA_STEER_ANY_DADDR = 1 << 2,
	NUPA_STEER_ANY_DPORT = 1 << 3,
};

struct nupa_cmd_stats {
	__le64 addr;			/* __le64[count] are written there */
	__le32 count;			/* at most NUPA_STAT_COUNT (NUPA_QP_STAT_COUNT) */
	__le32 reserved;
};

enum {
	NUPA_ACCESS_LOCAL_WRITE = 1 << 0,	/* as IBTA access flags */
	NUPA_ACCESS_REMOTE_WRITE = 1 << 1,
	NUPA_ACCESS_REMOTE_READ = 1 << 2,
	NUPA_ACCESS_REMOTE_ATOMIC = 1 << 3,
};

/*
 * MR_REG: id = the 32-bit key (lkey and rkey are equal).  The table of page
 * addresses is copied before the command completes; a long one takes as long as
 * the switch has other ports to serve.  NUPA_E_QUOTA and NUPA_E_NOSPACE: payload
 * for this region will be delivered, for the host to copy.
 */
struct nupa_cmd_mr {
	__le64 iova;			/* address the application uses for the first byte */
	__le64 bytes;			/* > 0 */
	__le64 table_addr;		/* __le64[pages]: address of each page, aligned to it */
	__le32 pages;
	__le32 pd;
	__le32 access;			/* NUPA_ACCESS_* */
	__u8 page_shift;		/* 12 .. 30 */
	__u8 reserved[3];
};

/*
 * WINDOW_SET: the memory of an accelerator (nupa_accel_hw.h) lies at these bus
 * addresses of this host; from its completion on they mean that memory wherever
 * an address of the host's is given.  Which accelerators a port has is the
 * switch's to know: NUPA_E_NOENT if @memory is none of them.  So a host can say
 * where its own BAR lies, and nothing else.  NUPA_E_ADDRESS: RAM or another
 * window is there.
 *
 * WINDOW_CLEAR takes the addresses back.  What transmit rings have of them is to
 * be sent before, and what was registered at them deregistered: that goes on to
 * mean that accelerator's memory.  A reset clears all.
 */
struct nupa_cmd_window {
	__le64 base;			/* a multiple of 4096 */
	__le64 bytes;			/* all of its memory */
	__le64 memory;			/* nupa_accel_regs.id */
};

/*
 * QP_CREATE: id = qpn.  From its completion on, segments of @flow with a valid
 * tcp_bth may be placed into the receive queue's buffers.
 *
 * The receive queue ring is the application's own (rxe user ABI): pages of
 * struct rxe_queue_buf, then elements of struct rxe_recv_wqe.  The switch reads
 * the producer index and the entry for msn at (rq_base + msn) & rq_mask, and
 * from @shadow_addr how many messages the host has completed: a receive is
 * posted for msn if msn - completed < (producer - rq_base - completed) & rq_mask.
 */
enum {
	NUPA_QP_F_TX_V0 = 1 << 0,	/* rewrite this flow's ver 1 options to ver 0 as segments are cut */
	NUPA_QP_F_NO_RQ = 1 << 1,	/* no receive queue to read: untagged messages are delivered */
	NUPA_QP_F_ICRC = 1 << 2,	/* write ICRC on ver 0 */
	NUPA_QP_F_REMOTE_WRITE = 1 << 3,	/* the QP takes WRITEs: else they are delivered, for the host to refuse */
	NUPA_QP_F_SHADOW = 1 << 4,	/* the shadow's consumed and reads are kept */
	/*
	 * A TCP stream without messages: no option, no receive queue (rq_* are 0), no
	 * shadow (shadow_addr is 0), and no other flag.  Segments are placed where
	 * post_addr says.
	 */
	NUPA_QP_F_STREAM = 1 << 5,
	NUPA_QP_F_COMPLETE = 1 << 6,	/* receives may be completed in @cq, in turns (struct nupa_qp_shadow) */
	NUPA_QP_F_SRQ = 1 << 7,		/* with COMPLETE: the receives are those of @srq, and rq_* are 0 */
	NUPA_QP_F_SENDS = 1 << 8,	/* with COMPLETE: sends may be completed in @send_cq (struct nupa_qp_sends) */
};

struct nupa_cmd_qp {
	struct nupa_flow flow;
	__le32 pd;
	__le32 flags;			/* NUPA_QP_F_* */
	__le32 rcv_nxt;			/* TCP's, read under the socket lock at attach */
	__u8 rcv_wscale;
	__u8 rq_log2_bytes;		/* element size */
	__le16 rq_sge_max;
	__le32 rq_mask;			/* elements - 1, at most 32767 */
	__le32 rq_base;			/* ring index of msn 0 */
	__le32 rq_pages;
	__le64 rq_table_addr;		/* __le64[rq_pages]: 4 KiB pages of the ring, copied */
	__le64 shadow_addr;		/* struct nupa_qp_shadow */
	__le64 post_addr;		/* struct nupa_post (nupa_post_hw.h), with NUPA_QP_F_STREAM; else 0 */
	__le32 post_pages;		/* room for so many page addresses in it */
	__le32 cq;			/* id of a CQ_CREATE, with NUPA_QP_F_COMPLETE; else 0 */
	__le32 srq;			/* id of an SRQ_CREATE, with NUPA_QP_F_SRQ; else 0 */
	__le32 send_cq;			/* id of a CQ_CREATE, with NUPA_QP_F_SENDS; else 0 */
};

/*
 * A READ that waits for its response, at msn mod NUPA_READS_MAX.  Responses are
 * placed only where it says, so a sink needs no right of remote access.
 */
struct nupa_qp_read {
	__le64 va;
	__le32 key;
	__le32 length;
	__le32 valid;			/* NUPA_READ_VALID | msn, written after the rest; 0: none */
	__le32 reserved[3];
};
enum {
	NUPA_READS_MAX = 32,
	NUPA_READ_VALID = 1 << 16,
};

/* Host memory the switch reads, one per QP, written by the kernel alone. */
struct nupa_qp_reads {
	struct nupa_qp_read read[NUPA_READS_MAX];
};

/*
 * The same, but for what is whose turn it is to complete receives, with
 * NUPA_QP_F_COMPLETE.  The host gives the turn (HOST to SWITCH), after the rest of
 * it.  The switch takes it for each packet (SWITCH to BUSY), and gives it back when
 * all of its writes are done.  The host takes it back (SWITCH to HOST) to complete
 * what lies at @done or behind it.  So who has it alone completes, in order.
 *
 * The switch completes a packet that it has placed, if it begins at @done, is made
 * of whole messages of one kind (SENDs, also of a train and with immediate, or
 * WRITEs), and there is room in the completion queue.  TCP may yet refuse it: when
 * it comes again, it lies before @done.
 */
enum nupa_turn {
	NUPA_TURN_HOST = 0,
	NUPA_TURN_SWITCH = 1,
	NUPA_TURN_BUSY = 2,
};

enum {
	NUPA_LAST_WRITE = 1 << 30,
};

/*
 * With NUPA_QP_F_SENDS: the oldest sends under way that complete visibly, none of
 * which anything but its acknowledgement keeps from completion.  The host adds one
 * before it is sent, while fewer than NUPA_SENDS_MAX are in use.  When the switch has
 * completed a packet, or one in its place acknowledges alone, it completes the sends
 * that the packet acknowledges, if it can become the owner of the completion queue.  Who owns that completes, and counts; the
 * host skips what was counted when TCP hears of the acknowledgement.
 */
enum {
	NUPA_SENDS_MAX = 2,
};

struct nupa_qp_send {
	__le64 wr_id;
	__le32 end;			/* sequence number behind its last byte */
	__le32 bytes;
	__le32 opcode;			/* of its completion */
	__le32 reserved;
};

struct nupa_qp_sends {
	__le32 posted;			/* the host's; how many were added, stored after the last one */
	__le32 completed;		/* the owner's of the send CQ; so many of them are completed */
	struct nupa_qp_send send[NUPA_SENDS_MAX];	/* the n-th one is at n mod NUPA_SENDS_MAX */
};

struct nupa_qp_shadow {
	__le32 completed;		/* turn; untagged messages completed; advanced before their CQE is visible */
	__le32 consumed;		/* sequence number before which all delivered payload was copied */
	__le64 reads_addr;		/* struct nupa_qp_reads, written after it; 0: none waits yet */
	__le32 turn;			/* enum nupa_turn */
	__le32 done;			/* turn; sequence number before which all messages are completed */
	__le32 writes;			/* turn; number of the next WRITE without immediate */
	__le32 solicited;		/* turn; how many messages that the switch completed asked for an event */
	__le32 last;			/* turn; length of the last one that it completed; NUPA_LAST_WRITE */
	__le32 late;			/* the host's; how often it acknowledged late and without data: senders may have waited for it */
	__le32 awaits;			/* the host's; not zero: sends that the host is to complete visibly are under way */
	__le32 later;			/* the host's; not zero: both ends have room for sends that complete late (nupa_rxq_ctl.hurry) */
	struct nupa_qp_sends sends;	/* with NUPA_QP_F_SENDS; else it ends here */
};
NUPA_STATIC_ASSERT(sizeof(struct nupa_qp_read) == 32, "nupa_qp_read");
NUPA_STATIC_ASSERT(sizeof(struct nupa_qp_reads) == 1024, "nupa_qp_reads");
NUPA_STATIC_ASSERT(sizeof(struct nupa_qp_send) == 24, "nupa_qp_send");
NUPA_STATIC_ASSERT(sizeof(struct nupa_qp_shadow) == 104, "nupa_qp_shadow");

/*
 * CQ_CREATE: id = the host's number.  The ring is the application's (rxe user
 * ABI): pages of struct rxe_queue_buf, then elements of NUPA_CQE_BYTES that begin
 * with struct ib_uverbs_wc.  Of it the switch reads the consumer index, and it
 * writes elements and the producer index.  CQ_DESTROY: NUPA_E_INVALID while a QP
 * names it.
 */
struct nupa_cmd_cq {
	__le64 table_addr;		/* __le64[pages]: 4 KiB pages of the ring, copied */
	__le64 ctl_addr;		/* struct nupa_cq_ctl */
	__le32 pages;
	__le32 mask;			/* elements - 1 */
	__le32 flags;			/* NUPA_CQ_F_* */
	__le32 reserved;
};

enum {
	NUPA_CQ_F_WAITING = 1 << 0,	/* the host keeps nupa_cq_ctl.waiting */
};

/*
 * Host memory that the application cannot write.  Who writes to the ring owns it,
 * by compare and swap from NONE.  The switch tries once, and leaves the completions
 * to the host if that fails; the host waits.
 */
enum nupa_cq_owner {
	NUPA_CQ_OWNER_NONE = 0,
	NUPA_CQ_OWNER_HOST = 1,
	NUPA_CQ_OWNER_SWITCH = 2,
};

struct nupa_cq_ctl {
	__le32 owner;			/* enum nupa_cq_owner */
	__le32 prod;			/* the owner's; free-running index of the next element; stored after the ring's */
	__le32 waiting;			/* with NUPA_CQ_F_WAITING; the host: 1, somebody may sleep until a completion comes; the switch: 0, it tells (NUPA_RX_F_WAKE) */
	__le32 reserved;
};
/*
 * SRQ_CREATE: id = the host's number.  The ring is the application's, as a receive
 * queue's is.  Whose message begins next takes the next receive, so none of it is
 * anybody's before: the switch takes receives only for whole SENDs of one packet of
 * up to NUPA_SRQ_BURST_MAX_BYTES that it completes at once, in turn (struct
 * nupa_qp_shadow), and for WRITEs with immediate that it completes.  It writes to the
 * buffers, and the consumer index of the ring, while it owns the queue.  SRQ_DESTROY:
 * NUPA_E_INVALID while a QP names it.
 */
struct nupa_cmd_srq {
	__le64 table_addr;		/* __le64[pages]: 4 KiB pages of the ring, copied */
	__le64 ctl_addr;		/* struct nupa_srq_ctl */
	__le32 pages;
	__le32 mask;			/* elements - 1, at most 32767 */
	__le16 sge_max;
	__u8 log2_bytes;		/* element size */
	__u8 reserved[5];
};

/*
 * Host memory that the application cannot write.  Who takes receives owns the queue,
 * as with completion queues: the switch tries once, the host waits.
 */
struct nupa_srq_ctl {
	__le32 owner;			/* enum nupa_cq_owner */
	__le32 index;			/* the owner's; ring index of the next receive, masked; stored before the ring's */
	__le32 reserved[2];
};
NUPA_STATIC_ASSERT(sizeof(struct nupa_cmd_srq) == 32, "nupa_cmd_srq");
NUPA_STATIC_ASSERT(sizeof(struct nupa_srq_ctl) == 16, "nupa_srq_ctl");
NUPA_STATIC_ASSERT(sizeof(struct nupa_cmd_cq) == 32, "nupa_cmd_cq");
NUPA_STATIC_ASSERT(sizeof(struct nupa_cq_ctl) == 16, "nupa_cq_ctl");

struct nupa_admin_cmd {
	__le16 op;			/* enum nupa_admin_op */
	__le16 reserved;
	__le32 id;			/* what the op names: queue, rule, key, qpn */
	union {
		struct nupa_cmd_queue queue;
		struct nupa_cmd_rx_mode rx_mode;
		struct nupa_cmd_rss rss;
		struct nupa_cmd_steer steer;
		struct nupa_cmd_stats stats;
		struct nupa_cmd_mr mr;
		struct nupa_cmd_qp qp;
		struct nupa_cmd_window window;
		struct nupa_cmd_cq cq;
		struct nupa_cmd_srq srq;
		__u8 bytes[120];
	};
};
NUPA_STATIC_ASSERT(sizeof(struct nupa_cmd_queue) == 56, "nupa_cmd_queue");
NUPA_STATIC_ASSERT(sizeof(struct nupa_cmd_mr) == 40, "nupa_cmd_mr");
NUPA_STATIC_ASSERT(sizeof(struct nupa_cmd_qp) == 112, "nupa_cmd_qp");
NUPA_STATIC_ASSERT(sizeof(struct nupa_cmd_window) == 24, "nupa_cmd_window");
NUPA_STATIC_ASSERT(sizeof(struct nupa_admin_cmd) == 128, "nupa_admin_cmd");

struct nupa_admin_comp {
	__le16 status;			/* enum nupa_admin_status */
	__le16 op;
	__le32 id;
	__le64 value;			/* STATS: entries written */
};
NUPA_STATIC_ASSERT(sizeof(struct nupa_admin_comp) == 16, "nupa_admin_comp");

/* Counters of a port, in ABI order: new ones are added at the end. */
#define NUPA_STATS(X) \
	X(rx_packets) X(rx_bytes) X(rx_segments) X(rx_merged) X(rx_drop_no_buffer) \
	X(rx_drop_no_queue) X(rx_drop_filter) X(rx_csum_bad) X(rx_interrupts) \
	X(tx_packets) X(tx_bytes) X(tx_segments) X(tx_drop_invalid) X(tx_drop_unknown) \
	X(tx_doorbells) X(tx_flood) \
	X(placed_segments) X(placed_bytes) X(qp_delivered_segments) X(qp_delivered_bytes) \
	X(bth_invalid) X(deliver_plain) X(deliver_flags) X(deliver_window) X(deliver_duplicate) \
	X(deliver_disorder) X(deliver_unsynced) X(deliver_inconsistent) X(deliver_no_receive) \
	X(deliver_key) X(deliver_bounds) X(deliver_access) X(deliver_opcode) X(deliver_csum) \
	X(fault_loss) X(fault_reorder) X(fault_duplicate) X(fault_corrupt) X(fault_delay) \
	X(queue_drop) X(ecn_marked) X(abi_errors) \
	X(deliver_order) X(fault_truncate) X(fault_bleach) X(fault_mangle) X(fault_copy) \
	X(drop_overtaken) X(deliver_peer) X(tx_drop_source) X(deliver_lengths) \
	X(tx_watch_ends) X(tx_seen) X(completed_messages) X(rx_quiet) X(completed_sends)

#define NUPA_STAT_ENUM(name) NUPA_STAT_##name,
enum nupa_stat { NUPA_STATS(NUPA_STAT_ENUM) NUPA_STAT_COUNT };
#undef NUPA_STAT_ENUM

/* Counters of a QP context. */
#define NUPA_QP_STATS(X) \
	X(placed_segments) X(placed_bytes) X(delivered_segments) X(delivered_bytes) \
	X(tx_segments) X(tx_bytes) X(refused) X(disorder_overflows) X(completed_messages)

#define NUPA_QP_STAT_ENUM(name) NUPA_QP_STAT_##name,
enum nupa_qp_stat { NUPA_QP_STATS(NUPA_QP_STAT_ENUM) NUPA_QP_STAT_COUNT };
#undef NUPA_QP_STAT_ENUM

/* Must a producer that moved from @old to @now signal a peer that waits past @event? */
static inline bool nupa_need_event(__u32 event, __u32 now, __u32 old)
{
	return (__u32)(now - event - 1) < (__u32)(now - old);
}

/*
 * Are these the buffers that a completion of @payload bytes names, all full but for
 * the last?  @long_bytes is 0 for a queue without long buffers.
 */
static inline bool nupa_rx_bufs_right(__u32 payload, __u32 long_bufs, __u32 long_bytes, __u32 bufs,
				      __u32 buf_bytes)
{
	__u32 in_long;

	if (long_bufs > NUPA_RX_BUFS_PER_PACKET_MAX || bufs > NUPA_RX_BUFS_PER_PACKET_MAX - long_bufs ||
	    (long_bufs && !long_bytes))
		return false;
	in_long = long_bufs * long_bytes;
	if (payload > in_long)
		return bufs == (payload - in_long - 1) / buf_bytes + 1;
	return !bufs && (!long_bufs || payload > in_long - long_bytes);
}

#ifdef __cplusplus
}
#endif
#endif
