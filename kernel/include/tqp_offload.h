/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The contract between tcp_qp and a NIC driver whose hardware can place queue
 * pair payload (an offload provider).  docs/offload-provider.md says what to
 * implement, in which order, and which tests to pass.
 *
 * The provider adds an auxiliary device by tqp_offload_device_add(); tcp_qp is
 * the auxiliary driver for it.  Neither module needs the other to load.
 * auxiliary_device_delete() returns only after tcp_qp has let go of every QP
 * and MR on the device, so the driver may then tear its queues down.
 *
 * All operations sleep, may be called at once from several tasks, and have
 * taken full effect in the hardware when they return.
 */
#ifndef TQP_OFFLOAD_H
#define TQP_OFFLOAD_H

#include <linux/atomic.h>
#include <linux/auxiliary_bus.h>
#include <linux/netdevice.h>
#include <linux/random.h>

/* The auxiliary bus matches "MODULE.NAME"; every provider uses these two, whatever its module is. */
#define TQP_OFFLOAD_ADEV_MODULE "tqp_offload"
#define TQP_OFFLOAD_ADEV_NAME "qp"

enum {
	TQP_OFFLOAD_READS_MAX = 32,	/* READs and atomics of one QP that may wait for a response */
	TQP_OFFLOAD_READ_VALID = 1 << 16,
};

struct tqp_offload_device;

struct tqp_offload_mr {
	u32 key;			/* lkey and rkey are equal */
	u32 pd;
	int access;			/* IB_ACCESS_* */
	u64 iova;
	u64 bytes;
	const dma_addr_t *pages;	/* for dma_dev; [i] holds iova rounded down to a page, plus i pages */
	u32 nr_pages;
	u8 page_shift;
};

enum {
	/* As segments of this connection are cut, rewrite their ver 1 options to ver 0. */
	TQP_OFFLOAD_QP_TX_V0 = 1 << 0,
	/* There is no receive queue that may be read: untagged messages are delivered. */
	TQP_OFFLOAD_QP_NO_RQ = 1 << 1,
	/* Write the ICRC on ver 0. */
	TQP_OFFLOAD_QP_ICRC = 1 << 2,
	/* The QP takes WRITEs; without it they are delivered, and the host refuses them. */
	TQP_OFFLOAD_QP_REMOTE_WRITE = 1 << 3,
	/* Receives may be completed by the hardware, in @cq, in turns with tcp_qp. */
	TQP_OFFLOAD_QP_COMPLETE = 1 << 4,
	/* With COMPLETE: the receives are those of @srq, and rq_* are 0. */
	TQP_OFFLOAD_QP_SRQ = 1 << 5,
	/* With COMPLETE: sends may be completed by the hardware, too, in @send_cq. */
	TQP_OFFLOAD_QP_SENDS = 1 << 6,
};

/* One direction of a TCP connection as this host receives it: saddr is the peer. */
struct tqp_offload_flow {
	u8 family;			/* 4 or 6 */
	__be16 sport;
	__be16 dport;
	u8 saddr[16];			/* IPv4: the first four bytes, the rest zero */
	u8 daddr[16];
};

struct tqp_offload_qp {
	u32 qpn;
	u32 pd;
	u32 flags;			/* TQP_OFFLOAD_QP_* */
	struct tqp_offload_flow flow;
	u32 rcv_nxt;			/* TCP's, read under the socket lock at attach */
	u8 rcv_wscale;
	/*
	 * The ring that the application writes: struct rxe_queue_buf with elements of struct
	 * rxe_recv_wqe (rdma/rdma_user_rxe.h).  The receive of msn is at (rq_base + msn) & rq_mask.
	 */
	u8 rq_log2_bytes;		/* of an element */
	u16 rq_sge_max;
	u32 rq_mask;			/* elements - 1 */
	u32 rq_base;			/* ring index of msn 0 */
	const dma_addr_t *rq_pages;	/* 4 KiB each, for dma_dev; copied */
	u32 nr_rq_pages;
	dma_addr_t shadow;		/* struct tqp_offload_shadow; until qp_destroy returns */
	u32 cq;				/* with TQP_OFFLOAD_QP_COMPLETE: of a cq_create */
	u32 srq;			/* with TQP_OFFLOAD_QP_SRQ: of an srq_create */
	u32 send_cq;			/* with TQP_OFFLOAD_QP_SENDS: of a cq_create */
};

/*
 * Host memory that the hardware reads, one for each QP, written by tcp_qp alone but
 * for the turn.  READs that wait for a response, at msn mod TQP_OFFLOAD_READS_MAX: responses
 * are placed only where a valid one says, so a sink needs no right of remote
 * access.
 */
struct tqp_offload_read {
	__le64 va;
	__le32 key;
	__le32 length;
	__le32 valid;			/* TQP_OFFLOAD_READ_VALID | msn, written after the rest; 0: none */
	__le32 reserved[3];
};

struct tqp_offload_reads {
	struct tqp_offload_read read[TQP_OFFLOAD_READS_MAX];
};

/*
 * Whose turn it is to complete receives, of a QP with TQP_OFFLOAD_QP_COMPLETE: what is
 * marked so is read and written by whose turn it is.  tcp_qp gives the turn (HOST to
 * NIC), after the rest.  The hardware takes it for each packet (NIC to BUSY), and gives
 * it back when all of its writes are done.  tcp_qp takes it back (NIC to HOST) to
 * complete what lies at @done or behind it.
 *
 * What the hardware may complete is a packet that it has placed, which begins at @done,
 * whose number is the next one, and which is made of whole SENDs (also a train, or with
 * immediate) or WRITEs.  First its receives are used: @completed, the receive queue's
 * consumer index; then the completions; then @done.
 */
enum tqp_offload_turn {
	TQP_OFFLOAD_TURN_HOST = 0,
	TQP_OFFLOAD_TURN_NIC = 1,
	TQP_OFFLOAD_TURN_BUSY = 2,
};

enum {
	TQP_OFFLOAD_LAST_WRITE = 1 << 30,
};

/*
 * With TQP_OFFLOAD_QP_SENDS: the oldest sends under way that complete visibly, each by
 * nothing but its acknowledgement.  tcp_qp adds one before it is sent.  When the hardware
 * has completed a packet, or one in its place acknowledges alone, it completes those that
 * the packet acknowledges, as the owner of the send CQ.  Who owns it completes, and counts; what was counted tcp_qp skips.
 */
enum {
	TQP_OFFLOAD_SENDS_MAX = 2,
};

struct tqp_offload_send {
	__le64 wr_id;
	__le32 end;			/* sequence number behind its last byte */
	__le32 bytes;
	__le32 opcode;			/* enum ib_wc_opcode */
	__le32 reserved;
};

struct tqp_offload_sends {
	__le32 posted;			/* tcp_qp's; how many were added, stored after the last one */
	__le32 completed;		/* the owner's of the send CQ; so many of them are completed */
	struct tqp_offload_send send[TQP_OFFLOAD_SENDS_MAX];	/* the n-th is at n mod TQP_OFFLOAD_SENDS_MAX */
};

struct tqp_offload_shadow {
	__le32 completed;		/* turn; untagged messages completed; advanced before their CQE is visible */
	__le32 consumed;		/* sequence number before which all delivered payload was copied */
	__le64 reads_addr;		/* struct tqp_offload_reads, written after it; 0: none waits yet */
	__le32 turn;			/* enum tqp_offload_turn */
	__le32 done;			/* turn; sequence number before which all messages are completed */
	__le32 writes;			/* turn; number of the next WRITE without immediate */
	__le32 solicited;		/* turn; how many that the hardware completed asked for an event */
	__le32 last;			/* turn; length of the last one that it completed; TQP_OFFLOAD_LAST_WRITE */
	__le32 late;			/* tcp_qp's; how often it acknowledged late and without data: senders may have waited for it */
	__le32 awaits;			/* tcp_qp's; not zero: sends that it is to complete visibly are under way */
	__le32 later;			/* tcp_qp's; not zero: both ends have room for sends that complete late, so TCP may hear of a few messages at once */
	struct tqp_offload_sends sends;	/* with TQP_OFFLOAD_QP_SENDS */
};

/*
 * A completion queue that hardware and tcp_qp write to.  Who does owns it, by compare
 * and swap from NONE.  The hardware tries once, and else leaves the completions to
 * tcp_qp, which waits: so it is owned for as long as it takes to write them, no longer.
 */
enum tqp_offload_cq_owner {
	TQP_OFFLOAD_CQ_OWNER_NONE = 0,
	TQP_OFFLOAD_CQ_OWNER_HOST = 1,
	TQP_OFFLOAD_CQ_OWNER_NIC = 2,
};

struct tqp_offload_cq_ctl {
	__le32 owner;			/* enum tqp_offload_cq_owner */
	__le32 prod;			/* the owner's; free-running index of the next completion; stored after the ring's */
	__le32 waiting;			/* tcp_qp: 1, somebody may sleep until a completion comes; hardware: 0, it calls came() */
	__le32 reserved;
};

struct tqp_offload_cq {
	u32 id;
	const dma_addr_t *pages;	/* struct rxe_queue_buf, then elements of 64 bytes; 4 KiB each, copied */
	u32 nr_pages;
	u32 mask;			/* elements - 1 */
	dma_addr_t ctl;			/* struct tqp_offload_cq_ctl; until cq_destroy returns */
	/*
	 * Hardware that leaves @waiting alone has nobody call it, and tells of each packet at
	 * once.  Any context, until cq_destroy returns.
	 */
	void (*came)(void *arg);
	void *arg;
};

/*
 * A shared receive queue that hardware and tcp_qp take receives from.  Who does owns it,
 * as a completion queue.  No receive is a message's before it is taken: the hardware takes
 * one only for a whole SEND that it places and completes at once, in turn, all of a
 * packet's or none, or for a WRITE with immediate that it completes; and it writes to
 * their buffers while it owns the queue.
 */
struct tqp_offload_srq_ctl {
	__le32 owner;			/* enum tqp_offload_cq_owner */
	__le32 index;			/* the owner's; ring index of the next receive, masked; stored before the ring's consumer index */
	__le32 reserved[2];
};

struct tqp_offload_srq {
	u32 id;
	const dma_addr_t *pages;	/* struct rxe_queue_buf, then elements of struct rxe_recv_wqe; 4 KiB each, copied */
	u32 nr_pages;
	u32 mask;			/* elements - 1 */
	u16 sge_max;
	u8 log2_bytes;			/* of an element */
	dma_addr_t ctl;			/* struct tqp_offload_srq_ctl; until srq_destroy returns */
};

static_assert(sizeof(struct tqp_offload_read) == 32);
static_assert(sizeof(struct tqp_offload_shadow) == 104);

/*
 * Where the bytes of a stream from @seq on belong: a reader waits for them, and its
 * memory lies at these pages.  tcp_qp opens a post (NONE to OPEN, after all the rest)
 * and takes it back (OPEN to NONE).  The hardware takes it for each segment (OPEN to
 * BUSY) and gives it back when all of its writes are done.  So once it is NONE, no
 * byte is written any more, and @placed is behind the last one that was.
 *
 * Placed is a segment that is the next one the host gets and lies within the post.
 */
enum tqp_offload_post_state {
	TQP_OFFLOAD_POST_NONE = 0,
	TQP_OFFLOAD_POST_OPEN = 1,
	TQP_OFFLOAD_POST_BUSY = 2,
};

struct tqp_offload_post {
	__le32 state;			/* enum tqp_offload_post_state */
	__le32 placed;			/* tcp_qp: seq, while it is NONE; then the hardware */
	__le32 seq;
	__le32 bytes;
	__le32 offset;			/* of the first byte in the first page */
	__le32 reserved[11];
	__le64 pages[];			/* for dma_dev, 4 KiB each */
};

static_assert(sizeof(struct tqp_offload_post) == 64);

/* A TCP connection without a QP: only what it receives, without any option. */
struct tqp_offload_stream {
	u32 id;				/* no QP has it: bit 31 is set */
	struct tqp_offload_flow flow;
	u32 rcv_nxt;			/* TCP's, or an earlier one */
	u8 rcv_wscale;
	dma_addr_t post;		/* struct tqp_offload_post; until stream_destroy returns 0 */
	u32 post_pages;			/* room in it */
};

/*
 * To take a word that the hardware changes, too: what was there.  Always a locked
 * instruction.  With one CPU Linux takes the lock prefix out of cmpxchg() and of all
 * atomic operations, and then the hardware may take the word in the middle of one.
 */
static inline __le32 tqp_offload_cmpxchg(__le32 *word, __le32 old, __le32 new)
{
	return sync_cmpxchg(word, old, new);
}

/*
 * What creates, and fails: the hardware does not know it, and does not touch what it was told
 * of.  A provider that cannot tell, as its hardware does not answer, says 0.
 * What destroys: 0, or -ENOENT where there is none: the hardware does not touch what it was
 * told of any more.  Else it may, until it was reset, and the memory is given up.
 */
struct tqp_offload_ops {
	int (*mr_reg)(struct tqp_offload_device *odev, const struct tqp_offload_mr *mr);
	int (*mr_dereg)(struct tqp_offload_device *odev, u32 key);
	int (*qp_create)(struct tqp_offload_device *odev, const struct tqp_offload_qp *qp);
	int (*qp_destroy)(struct tqp_offload_device *odev, u32 qpn);
	/* May be NULL, both: then no QP has TQP_OFFLOAD_QP_COMPLETE. */
	int (*cq_create)(struct tqp_offload_device *odev, const struct tqp_offload_cq *cq);
	int (*cq_destroy)(struct tqp_offload_device *odev, u32 id);	/* no QP names it any more */
	/* May be NULL, both: then QPs of an SRQ have TQP_OFFLOAD_QP_NO_RQ. */
	int (*srq_create)(struct tqp_offload_device *odev, const struct tqp_offload_srq *srq);
	int (*srq_destroy)(struct tqp_offload_device *odev, u32 id);	/* no QP names it any more */
	/* May be NULL, both: what sockets without a QP receive is copied then. */
	int (*stream_create)(struct tqp_offload_device *odev,
			     const struct tqp_offload_stream *stream);
	int (*stream_destroy)(struct tqp_offload_device *odev, u32 id);
	/*
	 * May be NULL.  Has nothing come to that NAPI's queue but what the hardware has completed
	 * and TCP need not hear of yet?  Any context.
	 */
	bool (*is_quiet)(struct tqp_offload_device *odev, u32 napi_id);
	/*
	 * May be NULL, where qp_destroy() has done it.  Is all with TCP by now that the hardware had said
	 * before the call?  Waits a little for it; may sleep.
	 */
	bool (*rx_passed)(struct tqp_offload_device *odev);
};

/*
 * Filled by the NIC driver before tqp_offload_device_add(), constant after.  Of
 * @adev the driver fills name, dev.parent and dev.release.
 */
struct tqp_offload_device {
	struct auxiliary_device adev;
	struct net_device *netdev;
	struct device *dma_dev;
	const struct tqp_offload_ops *ops;
	/*
	 * What it can do on transmit: TQP_OFFLOAD_QP_TX_V0, TQP_OFFLOAD_QP_ICRC (which needs TX_V0).
	 * qp_create() is asked for nothing else; the other flags say what the QP is.
	 */
	u32 tx_flags;
	bool completes_sends;	/* TQP_OFFLOAD_QP_SENDS */
	bool mixed_trains;	/* it places them, of SENDs and of WRITEs; else peers are not told that we take any */
};

static inline struct tqp_offload_device *to_tqp_offload_device(struct auxiliary_device *adev)
{
	return container_of(adev, struct tqp_offload_device, adev);
}

/*
 * After auxiliary_device_init(); as auxiliary_device_add(), under the neutral name.
 * All providers share the name and nobody else numbers their devices, so the
 * number is random.
 */
static inline int tqp_offload_device_add(struct tqp_offload_device *odev)
{
	odev->adev.id = get_random_u32() & INT_MAX;
	return __auxiliary_device_add(&odev->adev, TQP_OFFLOAD_ADEV_MODULE);
}

/*
 * A placed skb, as the driver hands it to the stack: the frags are a shared
 * zero page, skb->decrypted is set, truesize >= len, CHECKSUM_UNNECESSARY, and
 * the TCP header still carries its tcp_bth option.  It must go up by
 * netif_receive_skb(), never by GRO.  One of a stream has no option; it is marked as
 * unreadable, too, so that nobody takes its zeroes for what was received.
 */

#endif
