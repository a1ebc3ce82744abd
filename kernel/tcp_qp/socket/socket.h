/* SPDX-License-Identifier: GPL-2.0 */
/* A TCP socket while it carries a QP. */
#ifndef TQP_SOCKET_H
#define TQP_SOCKET_H

#include "conn/conn.h"

extern struct tcp_ulp_ops tqp_ulp_ops;

/* Where connections by number are made; 0: nowhere.  No application's socket of it gets a QP. */
extern ushort tqp_number_port;

/* ---- ulp.c ---- */
/* -EBUSY may have a reason in the conn. */
int tqp_ulp_attach(struct socket *sock, struct tqp_conn *conn);
/* The application's side is plain TCP's again; sk lock. */
void tqp_ulp_restore(struct tqp_conn *conn);
/* All of the socket is, since no QP byte was sent or received; sk lock. */
void tqp_ulp_undo(struct tqp_conn *conn);
int tqp_ulp_init(void);
void tqp_ulp_exit(void);

/* ---- family.c ---- */
/* For @sk's own operations as they are now, or NULL; process context, sk lock. */
const struct tqp_family *tqp_family_get(struct sock *sk);
void tqp_family_exit(void);

/* ---- xmit.c ---- */
int tqp_queue_xmit(struct sock *sk, struct sk_buff *skb, struct flowi *fl);

/* ---- hook.c ---- */
int tqp_hook_init(void);
void tqp_hook_exit(void);
/* One conn more or less in @net: packets are looked at while there is any.  Both sleep. */
int tqp_hook_get(struct net *net);
void tqp_hook_put(struct net *net);

#endif
