/* SPDX-License-Identifier: GPL-2.0 */
/* A conn's receive side: the message being received, and the receive that it takes. */
#ifndef TQP_CONN_RX_H
#define TQP_CONN_RX_H

#include <linux/timer.h>
#include <linux/workqueue.h>
#include <tcp_qp/tcp_bth_operands.h>
#include "wire/msgwire.h"
#include "wire/quickack.h"
#include "wire/rxmsg.h"
#include "object/tqp.h"

enum {
	TQP_STALL_FIRST_MS = 1,			/* look for late receives while data waits */
	TQP_STALL_LAST_MS = 64,
	TQP_RX_TURN_BYTES = 8 << 20,		/* out of TCP, as TQP_TX_TURN_BYTES */
	TQP_RX_MESSAGE_BYTES = 512,		/* a message or an skb counts for so many, beside its own */
};

/* The receive of the message, copied once. */
struct tqp_rx_wqe {
	bool valid;
	u8 nr_sge;
	u8 failed;			/* enum ib_wc_status: it failed here, and completes with the flush */
	u64 wr_id;
	u64 room;			/* of all SGEs */
	struct ib_sge *sges;		/* as many as a receive may have */
};

/* The one copy of a receive WQE; not whether it is valid. */
static inline void tqp_rx_wqe_copy(struct tqp_rx_wqe *to, const struct rxe_recv_wqe *from,
				   u32 max_sge)
{
	to->wr_id = READ_ONCE(from->wr_id);
	to->nr_sge = min3(READ_ONCE(from->dma.num_sge), max_sge, (u32)TQP_SGE_MAX);
	to->room = 0;
	for (u32 i = 0; i < to->nr_sge; i++) {
		to->sges[i].addr = READ_ONCE(from->dma.sge[i].addr);
		to->sges[i].length = READ_ONCE(from->dma.sge[i].length);
		to->sges[i].lkey = READ_ONCE(from->dma.sge[i].lkey);
		to->room += to->sges[i].length;
	}
}

/* Lock: the sk lock. */
struct tqp_rx {
	struct tqp_rx_msg msg;
	struct tqp_rx_train train;
	struct tqp_rx_wqe wqe;
	u8 operands[TCP_BTH_OPERANDS_MAX_BYTES];
	bool started;			/* the first message was seen */
	bool stalled;
	bool running;
	bool eof;
	bool yielded;			/* the turn is over, tx.work goes on */
	bool ack_held;			/* what was not looked at is not acknowledged */
	bool ack_cut;			/* an ACK said less than TCP wanted to */
	bool window_late;		/* received under a user's lock: see tqp_rx_tell_window() */
	bool ack_ours;			/* the ACK that is being sent: TCP has not asked for it */
	bool hears;			/* for what is sent next: it acknowledges what TCP hears of now */
	bool carries;			/* an ACK of TCP's waits for the answer */
	bool told_sack;			/* the newest ACK that left told of a hole: TCP's next one tells that it is filled */
	u32 told_ack;			/* that one, */
	u32 told_edge;			/* and where the window ended that it told of */
	u32 seq;			/* up to where we have read; valid if started */
	struct tqp_rx_numbers next;	/* .untagged == messages completed, low 16 bits */
	u32 stall_ms;
	u32 watch_ms;
	struct tqp_quickack quickack;
	struct delayed_work work;
	struct timer_list late;		/* softirq does what tx.work has not begun; it has a reference */
};

#endif
