/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A TCP socket before it has a QP: it says one hello and hears one, and its
 * events wake whoever has it.  Connections by rdma_cm and by number begin so.
 *
 * Lock: the owner's own, under which all of this is called.
 */
#ifndef TQP_HELLO_H
#define TQP_HELLO_H

#include <linux/net.h>
#include "object/tqp.h"
#include "wire/cm_wire.h"

struct tqp_hello_sock {
	struct socket *sock;		/* NULL: none, yet or any more */
	void (*event)(struct tqp_hello_sock *hs);	/* something happened; any context */
	bool installed;			/* its callbacks are ours */
	void (*saved_data_ready)(struct sock *sk);
	void (*saved_state_change)(struct sock *sk);
	struct tqp_hello hello;		/* of the peer */
	u32 rx_bytes, tx_bytes;
	u8 rx[TQP_HELLO_MAX_BYTES];	/* the peer's frame */
	u8 tx[TQP_HELLO_MAX_BYTES];	/* ours */
};

/* The socket's events are told from here on.  @saved_data_ready: what it had, or is to have again. */
void tqp_hello_install(struct tqp_hello_sock *hs, void (*saved_data_ready)(struct sock *sk));
/* Idempotent; none is told when it returns. */
void tqp_hello_uninstall(struct tqp_hello_sock *hs);
/* Of its packets, IPv6's traffic class, too. */
void tqp_hello_set_tos(struct socket *sock, u8 tos);
/* Send hs->tx. */
int tqp_hello_send(struct tqp_hello_sock *hs);
/* Up to @bytes that have come, or an error: -EAGAIN for none, -ECONNRESET for the end. */
int tqp_hello_recv(struct tqp_hello_sock *hs, void *buf, size_t bytes);
/* 0 when the frame is complete, -EAGAIN when more must come, -EPROTO when it is none. */
int tqp_hello_read(struct tqp_hello_sock *hs, enum tqp_hello_kind kind);
/* Has more come than the hello?  That would be neither the QP's nor anyone's. */
bool tqp_hello_unread(struct tqp_hello_sock *hs);
/* Let go of the socket, if there is one.  @reset: the peer gets a RST; else a FIN if TCP allows. */
void tqp_hello_release(struct tqp_hello_sock *hs, bool reset);

#endif
