/* SPDX-License-Identifier: GPL-2.0 */
/* A conn's transmit side: the send queue's messages from the WQE to the acknowledgement. */
#ifndef TQP_CONN_TX_H
#define TQP_CONN_TX_H

#include <linux/bvec.h>
#include <linux/hrtimer.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>
#include <tcp_qp/tcp_bth_operands.h>
#include "wire/msglog.h"
#include "object/tqp.h"

enum {
	TQP_SNDBUF_BYTES = 8 << 20,		/* TCP may hold unsent and unacked, where it is allowed */
	TQP_MEMORY_WAIT_MS = 20,		/* an allocation failed and no ACK will wake us */
	TQP_SEND_BVECS = MAX_SKB_FRAGS,		/* page fragments per call into TCP, of one skb; on the stack */
	TQP_TRAIN_BVECS = 7 * MAX_SKB_FRAGS,	/* the same of a train that lies where it was posted */
	TQP_SEND_PIECE_BYTES = 1 << 20,
	/* A turn: what is done under one hold of the socket lock, whoever feeds it; then others' turn. */
	TQP_TX_TURN_BYTES = 16 << 20,		/* into TCP: more than its send buffer takes */
	TQP_TX_ANSWER_BYTES = 4 << 20,		/* the same from softirq, which no scheduler bounds */
	TQP_TX_WQE_BYTES = 8 << 10,		/* a WQE or a response counts for so many, beside its own */
	TQP_YIELD_MS = 1,			/* after a turn of tx.work, if others want the lock */
	/* Entries of an SQ that has room for eight sends more than are answered: both ends hear of four messages at once. */
	TQP_TX_ROOM_MIN = 32,
	TQP_TRAIN_COPY_BYTES = 4096,		/* of small messages, gathered */
	TQP_SENDS_COPY_BYTES = 4096,		/* a message alone, that then the NIC may complete */
	TQP_TRAIN_COPY_MESSAGE_BYTES = 256,	/* longer ones are sent from where they lie */
	TQP_TRAIN_BYTES = 1 << 20,		/* of these: a burst */
	TQP_WATCH_US = 50,			/* from a look at a watched send queue to the next */
	TQP_WATCH_IDLE_TICKS = 4,		/* so many that find nothing end the watch */
	TQP_WATCH_BURST = 3,			/* WQEs; more of them, while some are under way, begin one */
	TQP_WATCH_BURST_MAX = TQP_WATCH_BURST + 2,	/* as many: the first one that comes next begins one, too */
	TQP_WATCH_RENEWED_MAX = 64,		/* then its owner's own system call is due */
	TQP_TRAIN_SQ_SHARE = 4,			/* and this part of the SQ at most: all complete together */
	TQP_MIXED_MIN_MESSAGES = 4,		/* fewer are not worth a table of their lengths */
	TQP_MIXED_COPY_MESSAGE_BYTES = 1024,	/* of a mixed train: so short, a fragment of an skb is worth more */
	TQP_MIXED_COPY_ORDER = 2,		/* pages for these, and for what is inline */
	TQP_MIXED_COPY_BYTES = PAGE_SIZE << TQP_MIXED_COPY_ORDER,
	TQP_MIXED_COPIES = 32,			/* trains that may have such pages */
};

/*
 * Pages with what was copied for mixed trains.  A train's are its lead's: taken
 * under the sk lock, given back when it is done, in any context.
 */
struct tqp_tx_copies {
	unsigned long used[BITS_TO_LONGS(TQP_MIXED_COPIES)];
	struct page *pages[TQP_MIXED_COPIES];
};

/*
 * One work request in flight, or one READ response.  Those of a train that is
 * sent from where it lies are done together: an skb can hold one ubuf only, and
 * that is their lead's.
 */
struct tqp_tx_msg {
	/* refs: sender; each message until acknowledged; each response awaited; each skb with its pages */
	struct ubuf_info ubuf;
	struct tqp_tx_msg *lead;	/* whose ubuf it is: the train's first, or itself */
	struct tqp_conn *conn;
	struct tqp_mr **mrs;		/* pinned until done */
	u64 wr_id;
	u32 bytes;
	u16 unacked;			/* messages in the stream; sk lock */
	u16 awaited;			/* responses; sk lock */
	u16 together;			/* of a lead: so many of the SQ, from itself on, are done with it */
	u8 nr_mrs;
	u8 wc_opcode;
	u8 copies;			/* of a lead: number of its pages in tx.copies, plus one; or 0 */
	u8 signaled : 1;		/* these three are as they are from its begin on */
	u8 is_response : 1;		/* not of the SQ */
	u8 copied : 1;			/* copied as a whole: no skb, no driver has to do with it */
	u8 counted : 1;			/* in tx.signaled, and not in tx.reported */
	u8 nic : 1;			/* the NIC may complete it, too; as done */
	bool loaded;			/* has its place in the stream */
	bool done;			/* done_lock */
};
static_assert(sizeof(struct tqp_tx_msg) <= 64);	/* a line of a cache, and each slot of an SQ has one */

/* What BIND_MW asks for. */
struct tqp_mw_bind {
	u32 old_key;			/* the window's key */
	u32 new_key;			/* its low byte becomes the window's */
	u32 lkey;			/* the region's */
	int access;			/* IB_ACCESS_REMOTE_* */
	u64 va;
	u64 bytes;
};

/* The WQE at sq_next, copied once. */
struct tqp_wqe {
	bool valid;
	bool sized;			/* bytes, nr_sge and sges are */
	bool loaded;			/* checked, and a READ may have sent some of its requests */
	const struct rxe_send_wqe *from;	/* in the ring, where user space may change it */
	const struct tqp_op *op;
	u32 flags;			/* IB_SEND_* */
	u32 bytes;			/* of all SGEs, or inline */
	u32 ex;				/* immediate or key to invalidate, host order */
	u32 rkey;
	u64 wr_id;
	u64 remote_addr;
	u64 compare_add;
	u64 swap;
	struct tqp_mw_bind bind;
	u32 part;			/* next SGE of a READ to ask for */
	u32 nr_sge;			/* of sges[], those with bytes */
	struct ib_sge *sges;		/* [cap.max_send_sge] */
	u8 *data;			/* [cap.max_inline_data] */
	const u8 *copy;			/* of its bytes, for TCP to copy; NULL: they leave from where they lie */
	u8 operands[TCP_BTH_OPERANDS_MAX_BYTES];	/* of the request that is being sent */
};

/* The message being handed to TCP, as tqp_tx_begin() made it: may take several calls. */
struct tqp_tx_cur {
	bool active;
	bool ends_wqe;			/* after it the SQ goes on */
	u8 nr_sge;
	u8 sge;				/* the next byte is in this SGE */
	u16 nr_bvecs;			/* of a train in place: entries of tx.pages */
	u32 sge_off;			/* where the next byte is in the SGE, in data, or in the train */
	u32 left;
	struct tqp_tx_msg *msg;		/* NULL: nobody's; of a train: its lead */
	const struct ib_sge *sges;	/* in msg->mrs[]; not used if there is data */
	const u8 *data;			/* bytes that TCP copies; else NULL */
};

/*
 * The last messages handed to TCP, or being gathered.  Open: the next one may
 * share their segments, for TCP was not told where they end.
 */
struct tqp_tx_train {
	struct tqp_msg_rec like;	/* the first one's: but for number, place and target all have the same */
	u64 va;				/* the newest one's target */
	u8 *bytes;			/* [TQP_TRAIN_COPY_BYTES], from the first train on */
	u32 at, end;			/* of bytes: TCP has not taken these of gathered ones */
	u32 step;			/* from a target to the next one, in lengths; from two messages on */
	u16 messages;			/* so far */
	bool open;
};

/* What the send queue waits for; who brings it kicks. */
enum {
	TQP_TX_WAIT_SPACE = 1 << 0,	/* in TCP's send buffer */
	TQP_TX_WAIT_CREDIT = 1 << 1,
	TQP_TX_WAIT_MEMORY = 1 << 2,
	TQP_TX_WAIT_LOG = 1 << 3,	/* a free record */
	TQP_TX_WAIT_READ = 1 << 4,	/* fence, or too many READs */
	TQP_TX_WAIT_RESPONSE = 1 << 5,	/* READs through a window that is taken back */
};

/*
 * The send queue's watch, for who wants to leave out doorbells (tx/watch.c).
 * Lock: the sk lock; the timer reads ring and seen, and counts idle, without it.
 */
struct tqp_tx_watch {
	struct hrtimer timer;		/* runs, or is about to kick tx.work, while on */
	struct tqp_conn *conn;		/* whose it is */
	struct tqp_ring *ring;		/* the QP's SQ, which stays until detach has cancelled the timer */
	u32 seen;			/* sq_next when it was looked at last */
	u32 burst;			/* WQEs taken since nothing was under way, as far as that matters */
	u16 renewed;			/* looks that found some, since the last doorbell */
	u8 idle;			/* ticks without any */
	bool on;
};

/*
 * Locks: the sk lock, but done_lock guards dead, reported, msgs[].done and the
 * consumer's index of the SQ.  live may be counted down in any context.
 */
struct tqp_tx {
	struct tqp_msglog log;
	struct tqp_tx_msg **log_msg;	/* [log entries], behind them: whose the record is; NULL: nobody waits */
	struct tqp_tx_msg *msgs;	/* [sq entries] */
	atomic_t live;			/* sends and responses whose pages TCP or a driver may read */
	spinlock_t done_lock;
	struct tqp_mr **mrs;		/* [sq entries * max_send_sge] */
	struct tqp_wqe wqe;
	struct tqp_tx_cur cur;
	struct tqp_tx_train train;
	struct bio_vec *pages;		/* [TQP_TRAIN_BVECS], of a train in place, from the first one on */
	struct tqp_tx_copies *copies;	/* from the first mixed train on */
	u32 first_seq;			/* valid if tqp_tx_begun() */
	u32 sq_next;			/* ring index of the next WQE to load, masked */
	u32 sq_mask;
	bool gated;			/* a bell lets WQEs go: those before gate */
	bool late;			/* their completions may come after receives that answer them */
	bool running;
	bool failed;			/* the WQE at sq_next was refused */
	bool dead;			/* no more send CQEs; done_lock */
	bool room;			/* TQP_TX_ROOM_MIN */
	bool visible;			/* something that completes visibly was sent since the last doorbell; sk lock */
	u32 gate;			/* a ring index, masked */
	u32 waits;			/* TQP_TX_WAIT_*; read without the lock */
	s32 turn;			/* TQP_TX_TURN_BYTES, what is left of them */
	u16 bad_status;			/* enum ib_wc_status */
	u16 signaled;			/* sends that complete visibly; sk lock */
	u64 bad_wr_id;
	u16 msn;			/* next untagged */
	u16 write_msn;
	u16 request_msn;
	u16 reported;			/* of the signaled; done_lock */
	struct tqp_tx_watch *watch;	/* from the first send on of who wants one */
	struct work_struct work;	/* what is left of a turn, whoever's it was */
};

/* sk lock */
static inline void tqp_tx_wait(struct tqp_tx *tx, u32 what)
{
	WRITE_ONCE(tx->waits, tx->waits | what);
}

static inline void tqp_tx_wait_over(struct tqp_tx *tx, u32 what)
{
	if (tx->waits & what)
		WRITE_ONCE(tx->waits, tx->waits & ~what);
}

/* Any context. */
static inline bool tqp_tx_waits(const struct tqp_tx *tx, u32 what)
{
	return READ_ONCE(tx->waits) & what;
}

#endif
