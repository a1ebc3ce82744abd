/* SPDX-License-Identifier: GPL-2.0 */
/* rtr and credits. */
#ifndef TQP_HANDSHAKE_H
#define TQP_HANDSHAKE_H

#include "conn/conn.h"

/* ---- handshake.c ---- */
void tqp_send_ack(struct tqp_conn *conn);	/* of all that TCP has; sk lock */
void tqp_rtr_start(struct tqp_conn *conn);	/* sk lock */
void tqp_rtr_work(struct work_struct *work);
/* A segment of the peer's carried an option: any context, RCU. */
void tqp_peer_flags(struct tqp_conn *conn, u8 flags);
void tqp_peer_is_ready(struct tqp_conn *conn);	/* its QP can receive; any context */
void tqp_peer_credits(struct tqp_conn *conn, u32 aeth);
/* An ACKNOWLEDGE came as a message: whose TCP does that is a stock end.  Any context, RCU. */
void tqp_peer_is_stock(struct tqp_conn *conn);
/*
 * How many of the @bytes from @seq on, which came without an option, may be its
 * hello: all that it says before our rtr, and it may have come before the hook.
 */
u32 tqp_stock_hello(struct sock *sk, u32 seq, u32 bytes);
/* The same, in its turn; sk lock */
void tqp_peer_acknowledge(struct tqp_conn *conn, u32 aeth);
u16 tqp_credit_limit(struct tqp_conn *conn);	/* sk lock */
void tqp_credit_update(struct tqp_conn *conn);	/* tell the peer if it gained much; sk lock */
void tqp_probe_work(struct work_struct *work);

#endif
