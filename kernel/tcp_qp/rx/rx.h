/* SPDX-License-Identifier: GPL-2.0 */
/* From TCP to receives and memory. */
#ifndef TQP_RX_H
#define TQP_RX_H

#include "conn/conn.h"

/* ---- rx.c ---- */
void tqp_rx_run(struct tqp_conn *conn);		/* sk lock, any context */
/* After a run: is more due, by tx_work?  Then that fails the conn of a closed socket; sk lock. */
bool tqp_rx_goes_on(const struct tqp_conn *conn);
void tqp_rx_work(struct work_struct *work);
void tqp_rx_tell_window(struct tqp_conn *conn);	/* the backlog is empty; sk lock */
/* Receive the rest by tx_work.  It may be refused then, so it is not acknowledged before; sk lock. */
void tqp_rx_yield(struct tqp_conn *conn);
/* What was not looked at yet is not acknowledged before the next run ends; sk lock. */
void tqp_rx_hold_ack(struct tqp_conn *conn);

/* ---- settle.c ---- */
/*
 * The NIC completes nothing any more, and what it has completed is read, so that the peer is
 * told that it came.  Before the conn ends; sleeps, without the sk lock.
 */
void tqp_rx_settle(struct tqp_conn *conn);
/* What the NIC has completed and not told of yet is received; without the sk lock, in a task. */
void tqp_rx_look(struct tqp_conn *conn);
/* The same before something is sent, which so acknowledges it; sk lock, in a task. */
void tqp_rx_hear(struct tqp_conn *conn);
/* ... and after it, if congestion control holds back what was posted; sk lock, in a task. */
void tqp_rx_hear_held(struct tqp_conn *conn);
/* Does what leaves lack an acknowledgement that a peer of few sends waits for?  sk lock. */
bool tqp_rx_is_ahead(const struct tqp_conn *conn);

/* ---- message.c; sk lock ---- */
/*
 * What @skb holds from @off on, which is stream byte @seq, of the message that is under way or
 * begins there: bytes taken, 0 if nothing can be now.
 */
u32 tqp_rx_step(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq);
void tqp_rx_account(struct tqp_conn *conn, u32 bytes, bool placed);	/* payload that was delivered */

/* ---- share.c ---- */
void tqp_rx_ready(struct tqp_conn *conn);	/* tqp_rx_run(), now or by tx_work; TCP's receive path */
u64 tqp_share_now(void);			/* ns of the monotonic clock; 0 in a task */
/*
 * May this be received here, at @now?  A task always may; softirq while it has a share of
 * its processor left.  Who got true says when it is done, and since when.
 */
bool tqp_share_enter(u64 now);
void tqp_share_leave(u64 began);
void tqp_share_task(struct tqp_conn *conn);	/* tx_work goes on; if it does not begin soon, softirq; sk lock */
void tqp_share_init(struct tqp_conn *conn);
void tqp_share_cancel(struct tqp_conn *conn);	/* of a DEAD conn, without the sk lock */

/* ---- rx_wqe.c; sk lock ---- */
/* The current message's receive; false if none is posted. */
bool tqp_rx_take_wqe(struct tqp_conn *conn);
/* It is used up, by a SEND or by a WRITE with immediate. */
void tqp_rx_complete(struct tqp_conn *conn, enum ib_wc_status status);
/*
 * Whole messages of the train that @skb at @off, which is stream byte @seq, goes
 * on with: bytes taken.  Whatever is in the way of one is the general path's.
 */
u32 tqp_rx_train(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq);
/* The same of a mixed train. */
u32 tqp_rx_mixed(struct tqp_conn *conn, struct sk_buff *skb, u32 off, u32 seq);
/* The receive that failed here, or one taken from an SRQ for a message that will not end. */
void tqp_rx_flush(struct tqp_conn *conn);

#endif
