/* SPDX-License-Identifier: GPL-2.0 */
/* What a NIC does, and what it is told. */
#ifndef TQP_OFFLOAD_ROOM_H
#define TQP_OFFLOAD_ROOM_H

#include "conn/conn.h"

/* ---- offload.c ---- */
struct tqp_offload_device *tqp_offload_find(const struct net_device *netdev);
/* @gone ends what uses a NIC that goes, before it returns. */
int tqp_offload_init(void (*gone)(struct tqp_offload_device *odev));
void tqp_offload_exit(void);

/* ---- shadow.c ---- */
int tqp_shadow_init(struct tqp_device *dev);	/* once dev->offload is known */
void tqp_shadow_exit(struct tqp_device *dev);

/* ---- turn.c; sk lock, any context ---- */
/* May the NIC complete, or are there bytes of what it has? */
static inline bool tqp_turn_given(const struct tqp_conn *conn)
{
	return READ_ONCE(conn->offload.turn.state) >= TQP_TURN_NICS;
}

/* What the NIC has completed is known to rings, numbers and counters. */
void tqp_turn_sync(struct tqp_conn *conn);
/* Some of its bytes were read, or the turn was taken: are there more below the mark? */
void tqp_turn_read(struct tqp_conn *conn);
/* How many bytes of the stream from @seq on are of messages that the NIC has completed. */
u32 tqp_turn_done(const struct tqp_conn *conn, u32 seq);
/* To complete what the NIC has not.  False: it is busy for longer than one waits here. */
bool tqp_turn_take(struct tqp_conn *conn);
/* All before @seq is completed, and no message is under way there. */
void tqp_turn_give(struct tqp_conn *conn, u32 seq);
/* The NIC has forgotten the QP, or the QP forgets the conn. */
void tqp_turn_end(struct tqp_conn *conn);
/* Wake who waits for what the NIC has completed. */
void tqp_turn_tell(struct tqp_conn *conn);

/* ---- sends.c ---- */
/* May the NIC complete the current WQE, if TCP copies it?  sk lock. */
bool tqp_sends_may(const struct tqp_conn *conn);
/* It may @msg, whose record @rec is, and which is about to be sent; sk lock. */
void tqp_sends_post(struct tqp_conn *conn, const struct tqp_tx_msg *msg,
		    const struct tqp_msg_rec *rec);
/* The oldest of these is done, with @wc. */
void tqp_sends_done(struct tqp_conn *conn, const struct ib_uverbs_wc *wc);
/* The NIC has forgotten the QP; sk lock. */
void tqp_sends_end(struct tqp_conn *conn);

/* ---- qp.c ---- */
/* The connection as the switch sees it arrive. */
void tqp_offload_flow_of(const struct sock *sk, struct tqp_offload_flow *flow);
/* Of an attach; sleeps, without the sk lock. */
int tqp_conn_offload_start(struct tqp_conn *conn);
/* Remove the switch's context.  The shadow stays; idempotent; sleeps, but not for the sk lock. */
void tqp_conn_offload_leave(struct tqp_conn *conn);
/* And the shadow; idempotent; sleeps, without the sk lock. */
void tqp_conn_offload_stop(struct tqp_conn *conn);

/* ---- shadow.c ---- */
int tqp_shadow_alloc(struct tqp_conn *conn);
/* The switch's context is gone, or never was; idempotent; sk lock. */
void tqp_shadow_end(struct tqp_conn *conn);
/* Room to say which READs wait; process context, sk lock.  Without it responses are copied. */
void tqp_shadow_add_reads(struct tqp_conn *conn);

#endif
