/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The TCP side of a queue pair.  See docs/dataflow.md for the flow and tqp.h
 * for the lock order.
 *
 * A conn is born at attach and has one reference for each of: the QP, the
 * socket's ULP, every send whose pages TCP or a driver holds, every queued work.
 * "sk lock" below is the socket lock in either of its forms.
 *
 *   HANDSHAKE --peer's rtr--> ACTIVE --any error, close, detach--> DEAD
 *
 * DEAD is final.  What TCP already has of sent messages it goes on sending,
 * with its options, until the socket is destroyed.
 */
#ifndef TQP_CONN_H
#define TQP_CONN_H

#include <linux/skbuff.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/tcp.h>
#include "conn/credit.h"
#include "conn/end.h"
#include "conn/handshake.h"
#include "conn/offload.h"
#include "conn/reads.h"
#include "conn/rx.h"
#include "conn/socket.h"
#include "conn/tx.h"
#include "wire/icrc.h"
#include "wire/msgwire.h"
#include "object/tqp.h"

enum tqp_conn_state {
	TQP_CONN_HANDSHAKE,
	TQP_CONN_ACTIVE,
	TQP_CONN_DEAD,
};

/* Works of a conn that found the socket lock taken: bits of conn.deferred. */
enum tqp_deferred {
	TQP_DEFERRED_RTR = 1 << 0,
	TQP_DEFERRED_PROBE = 1 << 1,
	TQP_DEFERRED_RX = 1 << 2,
	TQP_DEFERRED_TURN = 1 << 3,
	TQP_DEFERRED_END = 1 << 4,
	TQP_DEFERRED_BELL = 1 << 5,
};

/* The connection manager's end of a connection, as a conn knows it. */
struct tqp_conn_owner {
	const struct tqp_conn_owner_ops {
		void (*get)(struct tqp_conn_owner *owner);
		void (*put)(struct tqp_conn_owner *owner);
		/* Something happened to the conn; any context. */
		void (*wake)(struct tqp_conn_owner *owner);
		/* the application moves the QP from state to state itself, and only its sends fail */
		bool by_number;
	} *ops;
};

/* struct tcp_qp_info from tx_messages on. */
struct tqp_conn_counters {
	u64 tx_messages;
	u64 tx_bytes;
	u64 tx_zerocopy_bytes;
	u64 tx_copied_bytes;
	u64 rx_messages;
	u64 rx_delivered_bytes;
	u64 rx_placed_bytes;
	u64 rx_copied_bytes;
	u64 tx_segments;
	u64 tx_sack_stripped;
	u64 rx_stalls;
	u64 tx_credit_waits;
};

/*
 * Lock: the sk lock, for what changes after attach; each part says its own.
 * Most of what an idle connection costs: 1,632 bytes let 20 into a slab of 32 KiB.
 */
struct tqp_conn {
	struct kref ref;
	enum tqp_conn_state state;
	struct tqp_device *dev;
	struct sock *sk;		/* we hold a reference */
	struct tqp_qp *qp;		/* NULL after detach */
	struct tqp_conn_owner *owner;	/* whose socket it is, if not the application's; a reference */
	u32 qpn;
	u32 engine;			/* enum tcp_qp_engine */
	u32 reason;
	u8 wire_version;		/* what leaves this host (offload: what the switch makes of it) */
	u8 host_version;		/* what queue_xmit writes */
	bool timestamps;		/* folded */
	bool icrc;			/* on what we send */
	u8 deferred;			/* enum tqp_deferred; the socket lock's spinlock */
	wait_queue_head_t wait;		/* attach: peer_ready or DEAD */
	struct ib_sge *sges;		/* tx.wqe's and rx.wqe's, then inline data */

	struct tqp_tx tx;
	struct tqp_requester requester;
	struct tqp_responder responder;
	struct tqp_rx rx;
	struct tqp_credit credit;
	struct tqp_handshake handshake;
	struct tqp_conn_socket socket;
	struct tqp_conn_offload offload;
	struct tqp_end end;
	struct delayed_work *bell;	/* its work; qp->mutex; control/bell.c */
	struct tqp_conn_counters counters;
};

static inline bool tqp_conn_by_number(const struct tqp_conn_owner *owner)
{
	return owner && owner->ops->by_number;
}

/* Has TCP a byte of ours, or is it about to?  sk lock. */
static inline bool tqp_tx_begun(const struct tqp_conn *conn)
{
	return conn->counters.tx_bytes || !tqp_msglog_empty(&conn->tx.log);
}

/* Where the bytes of ours that TCP has end: write_seq, if nobody else writes.  sk lock. */
static inline u32 tqp_tx_end_seq(const struct tqp_conn *conn)
{
	return conn->tx.first_seq + (u32)conn->counters.tx_bytes;
}

static inline struct tqp_conn *tqp_conn_of(const struct sock *sk)
{
	return (__force struct tqp_conn *)inet_csk(sk)->icsk_ulp_data;
}

static inline struct tqp_conn *tqp_conn_rcu(const struct sock *sk)
{
	return (__force struct tqp_conn *)rcu_dereference_raw(inet_csk(sk)->icsk_ulp_data);
}

/* Bytes of the longest message that can be sent. */
static inline u32 tqp_message_max(const struct tqp_conn *conn)
{
	return conn->icrc || !conn->host_version ? (u32)TCP_BTH_V0_MESSAGE_MAX_BYTES :
						   (u32)TQP_MESSAGE_MAX_BYTES;
}

/* ---- conn.c ---- */
/* Its memory, with what needs nobody else; tqp_conn_create() has the rest. */
struct tqp_conn *tqp_conn_alloc(struct tqp_qp *qp);
void tqp_conn_free(struct tqp_conn *conn);
/* @free: the work of a conn without references, by its end.free_work. */
int tqp_conn_cache_init(work_func_t free);
void tqp_conn_wait_gone(void);
void tqp_conn_cache_exit(void);
/* Whoever calls has a reference already, or the socket lock, which keeps the ULP's. */
struct tqp_conn *tqp_conn_get(struct tqp_conn *conn);
/* Under RCU alone: false if nobody has one any more. */
bool tqp_conn_tryget(struct tqp_conn *conn);
void tqp_conn_put(struct tqp_conn *conn);	/* any context */
/* Queue @work with a reference to the conn. */
void tqp_queue_delayed(struct tqp_conn *conn, struct delayed_work *work, u32 ms);
/* The same at once, though it be queued for later already, and with the caller's reference; any context. */
void tqp_queue_now(struct tqp_conn *conn, struct delayed_work *work);
/* Who waits for it should look at it, and its owner, if any; any context. */
void tqp_conn_notify(struct tqp_conn *conn);
/* Room for one more message?  READs and responses make the log grow; process context, sk lock. */
bool tqp_log_room(struct tqp_conn *conn);

/* ---- defer.c ---- */
/*
 * The sk lock for a work of the conn, which never sleeps for a process that has it.  False: the
 * work ends here, with its reference, and is queued with a new one when the lock is let go; or
 * the QP is parting from the socket, and nothing is left to do.
 */
bool tqp_lock_or_defer(struct tqp_conn *conn, enum tqp_deferred work);
/* Queue what was deferred: the lock is about to be let go, or nobody will call us then. */
void tqp_deferred_queue(struct tqp_conn *conn);
/* Of a work that was disabled. */
void tqp_deferred_forget(struct tqp_conn *conn, enum tqp_deferred work);

/* ---- fail.c ---- */
/* Stop the conn for @reason; sk lock.  end.work flushes what was posted. */
void tqp_conn_fail(struct tqp_conn *conn, enum tcp_qp_reason reason);
/* The same for a fault in what is being received: the peer is told, and its message not acknowledged. */
void tqp_conn_nak(struct tqp_conn *conn, enum tcp_qp_reason reason, enum tcp_bth_syndrome syndrome);
/* From @seq on the peer's sequence numbers are not acknowledged, unless they were already; sk lock. */
void tqp_hold_acks(struct tqp_conn *conn, u32 seq);
/* The peer's TERMINATE; sk lock. */
void tqp_terminated(struct tqp_conn *conn, const u8 *operands);
/* Queue end.work with a reference; any context. */
void tqp_end_kick(struct tqp_conn *conn);
/* What end.work waits for may have come; any context. */
static inline void tqp_end_wake(struct tqp_conn *conn)
{
	if (READ_ONCE(conn->end.waits))
		tqp_end_kick(conn);
}

/* No completion of a send from now on. */
void tqp_tx_die(struct tqp_conn *conn);

#endif
