/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections by number: modify_qp() to RTR names the peer's {GID, QPN, PSN}, and the
 * TCP connection is made here.  See docs/connections.md.
 *
 *   tqp_number    of a QP from RTR on, whose connection it makes or takes
 *   tqp_request   a connection to the listener, until a QP takes it or it goes
 *
 *   active   WAIT -> CONNECTING -> HELLO ---> ATTACHED -> LOST
 *              ^----- failed ---------'         |
 *   passive  WAIT <- no rtr --------------------'
 *
 * The side whose {GID, QPN} is lower is active.  Any state may go to CLOSED, which is
 * final.  A number's steps are taken by its work under its mutex, and so are a request's;
 * sockets, conns, doorbells and timers only wake them.
 *
 * Locks, outermost first: request->mutex, number->mutex, qp->mutex and the rest of tqp.h;
 * tn->lock and tqp_number_devices' inside of all.
 */
#ifndef TQP_NUMBER_H
#define TQP_NUMBER_H

#include <linux/in6.h>
#include "conn/conn.h"
#include "hello/asker.h"
#include "hello/hello.h"

enum {
	TQP_NUMBER_RETRY_FIRST_MS = 10,	/* a peer that does not listen yet is tried again after this */
	TQP_NUMBER_RETRY_LAST_MS = 500,	/* the time doubles with each try, up to this */
	TQP_NUMBER_SYN_RETRIES = 2,	/* 7 s in all; then a connect begins anew */
	TQP_NUMBER_HELLO_MS = 5000,	/* for a connection to say which QP it wants */
	TQP_NUMBER_PARK_MS = 30000,	/* for that QP's RTR */
	TQP_NUMBER_ANSWER_MS = TQP_NUMBER_PARK_MS + TQP_NUMBER_HELLO_MS,	/* for the peer's hello */
	TQP_NUMBER_RTR_MS = 2000,	/* for the peer's QP: while one connection has it, no other can */
	TQP_NUMBER_SEND_MIN_MS = 5000,	/* for a send without a peer, whatever IBTA's timeout comes to */
	TQP_NUMBER_SEND_MAX_MS = 60000,
	TQP_NUMBER_LOOKS = 4,		/* at a peer, in that time, whether it answers */
	TQP_NUMBER_ACCEPT_MS = 1000,	/* until a connection that there was no memory for is tried again */
	TQP_NUMBER_LISTEN_MS = 1000,	/* a port that is taken is tried again after this */
	TQP_NUMBER_BACKLOG = 1024,
	TQP_NUMBER_REQUESTS_MAX = 1024,	/* of a namespace; beyond, the oldest goes */
	TQP_NUMBER_PARKED_MAX = 4,	/* of these for a QP; the same */
	TQP_NUMBER_ACCEPT_MAX = 64,	/* connections taken per turn of a listener's work */
};

enum tqp_number_state {
	TQP_NUMBER_WAIT,		/* passive: for a request; active: until retry_at */
	TQP_NUMBER_CONNECTING,
	TQP_NUMBER_HELLO,		/* ours is sent */
	TQP_NUMBER_ATTACHED,
	TQP_NUMBER_LOST,		/* the connection has ended: a send fails */
	TQP_NUMBER_CLOSED,
};

/* References: qp->number, queued work, its conn, who looks at it. */
struct tqp_number {
	struct tqp_conn_owner owner;	/* as its conn knows it */
	struct kref ref;
	struct mutex mutex;		/* everything but what is said to be constant, ref, and what else is said */
	enum tqp_number_state state;
	bool aborted;			/* its QP lets go of it; no lock */
	bool active, self;		/* constant: self is a QP that is its own peer */
	bool peer_known;		/* peer_rq_psn is; qp->mutex, both */
	u32 peer_rq_psn;
	struct in6_addr local, remote;	/* constant; IPv4 mapped */
	u32 dest_qpn, rq_psn;		/* constant */
	u8 tos;				/* constant */
	struct tqp_qp *qp;		/* we hold a reference, until CLOSED */
	struct net *net;		/* constant; we hold a reference */
	const struct cred *cred;	/* constant; of who said RTR */
	struct tqp_asker asker;		/* constant; the same */
	struct tqp_hello_sock hs;
	struct tqp_conn *conn;		/* we hold a reference; while ATTACHED */
	struct delayed_work work;
	unsigned long deadline;		/* jiffies; of the state; 0: none */
	unsigned long retry_at;		/* jiffies; active, while WAIT */
	u32 retry_ms;			/* the next pause */
	unsigned long send_by;		/* jiffies; for the oldest send; 0: none waits; no lock */
	unsigned long watch_at;		/* jiffies; when to look whether the peer still answers; 0: never */
	u32 silent_since;		/* tcp_jiffies32; of the last look that did not find it silent */
};

struct tqp_number_net;

/* ---- number.c: for the device ---- */
/* What modify_qp() to RTR names; NULL: nobody.  qp->mutex. */
struct tqp_number *tqp_number_create(struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask);
/* The QP is in RTR: go; qp->mutex. */
void tqp_number_start(struct tqp_number *number);
/* It is not. */
void tqp_number_discard(struct tqp_number *number);
/* Its attributes are those of RTS, in which it is not yet; qp->mutex, qp->lock. */
void tqp_number_before_rts(struct tqp_qp *qp);
/* The QP is in RTS; qp->mutex. */
void tqp_number_rts(struct tqp_qp *qp);
/* The QP lets go: RESET, or its end; qp->mutex. */
void tqp_number_stop(struct tqp_qp *qp);
/* Sends were posted while qp->number_waits; process context. */
void tqp_number_posted(struct tqp_qp *qp);
/* Requests may name a device's QPs from here on, and not any more. */
void tqp_number_add_device(struct tqp_device *dev);
void tqp_number_remove_device(struct tqp_device *dev);
int tqp_number_init(void);
void tqp_number_exit(void);		/* returns when none is left */

/* ---- number.c: for requests ---- */
/* Of a QP's, with a reference, or NULL. */
struct tqp_number *tqp_number_get(struct tqp_qp *qp);
void tqp_number_put(struct tqp_number *number);
void tqp_number_wake(struct tqp_number *number);	/* look at it soon; any context */
/*
 * Take the connection @hs, over which @said came.  0: it is the number's, -EAGAIN: maybe
 * later, else never.  Process context.
 */
int tqp_number_offer(struct tqp_number *number, struct tqp_hello_sock *hs,
		     const struct tqp_hello_number *said);
/* Both ends of a connection, IPv4 mapped. */
void tqp_number_ends(const struct sock *sk, struct in6_addr *local, struct in6_addr *remote);

/* ---- step.c ---- */
void tqp_number_work(struct work_struct *work);
int tqp_number_attach(struct tqp_number *number, const struct tqp_hello_number *said);
int tqp_number_send_hello(struct tqp_number *number);
/* The peer's rq_psn and our sq_psn, once both are known; qp->mutex. */
void tqp_number_check_psn(struct tqp_number *number);
/* For the oldest send, jiffies from now; 0: for ever. */
unsigned long tqp_number_timeout(struct tqp_qp *qp);

/* ---- connect.c ---- */
/* Who says RTR may have a socket; his task, before anybody else knows the number. */
int tqp_number_ask(struct tqp_number *number);
/* A socket from number->local, as who said RTR would have it. */
int tqp_number_open(struct tqp_number *number);
/* The first call begins to connect, later ones give the result; -EAGAIN until then. */
int tqp_number_connect(struct tqp_number *number);
/* What the address vector says of packets. */
void tqp_number_tune(struct tqp_number *number);

/* ---- listen.c ---- */
/* One more or less that wants @net's listener; any context that may queue work. */
void tqp_number_listen(struct net *net);
void tqp_number_unlisten(struct net *net);
/* Requests that are parked for @qp should look again; any context. */
void tqp_number_unpark(struct net *net, u32 qpn);
int tqp_number_net_init(void);
void tqp_number_net_exit(void);

/* ---- find.c ---- */
/* The QP of @qpn on the device of @net that has the address, with a reference, or NULL. */
struct tqp_qp *tqp_number_find_qp(const struct net *net, const struct in6_addr *address, u32 qpn);

/* ---- request.c ---- */
struct tqp_request {
	struct kref ref;		/* the namespace's list, queued work, who looks at it */
	struct mutex mutex;		/* hs, and all steps */
	struct tqp_number_net *tn;	/* while listed */
	struct list_head node;		/* tn->requests, under tn->lock, as are the next two */
	bool heard;			/* said is here */
	struct tqp_hello_number said;
	bool evicted;			/* no lock */
	struct tqp_hello_sock hs;
	struct delayed_work work;
	unsigned long deadline;		/* jiffies */
};

/* A connection that came; takes the socket. */
void tqp_request_take(struct tqp_number_net *tn, struct socket *sock,
		      void (*saved_data_ready)(struct sock *sk));
/* It ends, soon; tn->lock. */
void tqp_request_evict(struct tqp_request *request);
void tqp_request_wake(struct tqp_request *request);	/* any context */
void tqp_request_wait_gone(void);

/* ---- listen.c, for requests ---- */
struct tqp_number_net {
	struct net *net;
	spinlock_t lock;		/* users, requests */
	u32 users;			/* numbers that live */
	struct list_head requests;	/* oldest first */
	u32 nr_requests;
	wait_queue_head_t empty;	/* nr_requests fell to 0 */
	struct delayed_work work;	/* opens, accepts, closes; the next two are its alone */
	struct socket *listener;
	void (*saved_data_ready)(struct sock *sk);
};

#endif
