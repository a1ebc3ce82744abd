/* SPDX-License-Identifier: GPL-2.0 */
/* Why a conn ends, and how far its end is. */
#ifndef TQP_CONN_END_H
#define TQP_CONN_END_H

#include <linux/timer.h>
#include <linux/workqueue.h>
#include <tcp_qp/tcp_bth_operands.h>

struct tqp_tx_msg;

enum {
	TQP_TERMINATE_MS = 1000,		/* for TCP to take why we end, and for the peer to acknowledge it */
	TQP_TERMINATE_LOOK_MS = 10,		/* for room in TCP */
	TQP_RETRIES_MAX_MS = 1000,		/* for all tries of a send to a peer that left */
};

/* What the work is at.  It never sleeps for others: it is woken, or comes back. */
enum tqp_end_step {
	TQP_END_BEGIN,
	TQP_END_TERMINATE,		/* is on its way into TCP */
	TQP_END_HEARD,			/* and to the peer */
	TQP_END_CUT,			/* what was received is acknowledged ahead of a RST */
	TQP_END_ABORT,			/* without the sk lock: nothing is sent any more, but what drivers have */
	TQP_END_DROP,
	TQP_END_OFFLOAD,		/* without the sk lock: the NIC forgets the QP */
	TQP_END_DRIVERS,
	TQP_END_RETRIES,		/* of sends to a peer that left: as long as IBTA's would take */
	TQP_END_OVER,
};

/*
 * Locks: the sk lock, but step, abort, terminate_begun and by are the work's alone.
 * waits, told, over and the syndrome may be looked at without a lock.
 */
struct tqp_end {
	struct work_struct work;
	union {
		struct timer_list late;		/* wakes the work; has a reference */
		struct rcu_work free_work;	/* of a conn that nobody has a reference to */
	};
	enum tqp_end_step step;
	u32 reason;			/* enum tcp_qp_reason */
	unsigned long by;		/* jiffies; of the step */
	int sk_err;			/* what TCP gave up for */
	u32 ack_limit;			/* if ack_held: nothing from here on is acknowledged any more */
	struct tcp_bth_terminate nak;	/* what the peer is told, if there is a syndrome */
	u8 operands[TCP_BTH_TERMINATE_BYTES];	/* nak as it is sent */
	struct tqp_tx_msg *failed_msg;	/* the WQE that failed at the peer */
	u16 failed_status;		/* its enum ib_wc_status */
	bool abort;			/* the connection ends with a RST */
	bool terminate_begun;
	bool ack_held;
	bool waits;			/* who finishes what the work waits for wakes it */
	bool told;			/* the peer was, or never will be; conn->wait is woken */
	bool over;			/* DEAD, and the QP flushed or parted from; release/acquire */
};

#endif
