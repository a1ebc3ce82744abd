/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rdma_cm by way of iw_cm: an endpoint (ep) is one connection from its SYN to
 * its end, a listener one iw_cm listen.  See docs/connections.md.
 *
 *   active   CONNECTING -> REQUEST_SENT ---.
 *                                           ATTACHED -> ESTABLISHED -> CLOSED
 *   passive  REQUEST_WAIT -> REQUESTED ----'
 *
 * Any state may go to CLOSED, which is final.  All steps are taken by ep->work
 * under ep->mutex; sockets, conns, QPs and timers only wake it.  iw_cm is told
 * exactly once how a connect or accept that returned 0 ended, and of a
 * connection's end exactly once after that, since its BUG_ONs want it so.
 *
 * Locks, outermost first: ep->mutex, then qp->mutex and the rest of tqp.h.
 * Under qp->mutex an ep may be woken or aborted, never waited for.
 */
#ifndef TQP_CM_H
#define TQP_CM_H

#include <linux/net.h>
#include <rdma/iw_cm.h>
#include "conn/conn.h"
#include "hello/asker.h"
#include "hello/hello.h"

enum {
	TQP_CM_CONNECT_MS = 10000,	/* SYN until established */
	/* A server may just be replacing its listener, as perftest does: tries again, ever later. */
	TQP_CM_REFUSED_FIRST_MS = 50,
	TQP_CM_REFUSED_LAST_MS = 400,
	TQP_CM_REPLY_MS = 30000,	/* for the peer's application to accept */
	TQP_CM_REQUEST_MS = 5000,	/* for a connection to say what it wants */
	TQP_CM_DECIDE_MS = 60000,	/* for our application to accept */
	TQP_CM_CLAIM_MS = 1000,		/* for whoever else has our QP locked */
	TQP_CM_CLAIM_LOOK_MS = 1,	/* whether he still has */
	TQP_CM_RTR_MS = 10000,		/* for the peer's QP */
	TQP_CM_LATE_MS = 1000,		/* after the peer's FIN: for receives that unread data waits for */
	TQP_CM_DEPTH_MAX = TQP_RD_ATOMIC_MAX,	/* IRD and ORD */
	TQP_CM_HALF_OPEN_MAX = 64,	/* per listener: REQUEST_WAIT eps; beyond, the oldest goes */
	TQP_CM_ACCEPT_MAX = 64,		/* connections taken per turn of a listener's work */
	TQP_CM_ACCEPT_MS = 1000,	/* until one that there was no memory for is tried again */
};

enum tqp_ep_state {
	TQP_EP_CONNECTING,
	TQP_EP_REQUEST_SENT,
	TQP_EP_REQUEST_WAIT,
	TQP_EP_REQUESTED,
	TQP_EP_ATTACHED,
	TQP_EP_ESTABLISHED,
	TQP_EP_CLOSED,
};

struct tqp_listener {
	struct kref ref;
	struct tqp_device *dev;		/* valid until closing */
	struct iw_cm_id *cm_id;		/* we hold a reference, until closing */
	struct socket *sock;		/* NULL: listens in a namespace without the device */
	struct tqp_asker asker;		/* constant, with sock: who listens */
	void (*saved_data_ready)(struct sock *sk);
	struct delayed_work work;
	spinlock_t lock;		/* below; also held while iw_cm is told of a request */
	bool closing;
	u32 nr_half_open;
	struct list_head half_open;	/* oldest first */
};

/* References: the table of eps until CLOSED, queued work, the QP's claim, the conn. */
struct tqp_ep {
	struct tqp_conn_owner owner;	/* as its conn knows it */
	struct kref ref;
	struct mutex mutex;		/* everything but ref, state as a hint, aborted, evicted, node */
	enum tqp_ep_state state;
	bool active;
	bool aborted;			/* its QP or device wants it to end */
	bool evicted;			/* its listener, unless its request is here */
	u32 id;				/* in the table of eps; what iw_cm knows a request by */
	struct tqp_device *dev;		/* we hold a reference */
	struct tqp_hello_sock hs;	/* its socket, and what is said there before the QP */
	struct net *net;		/* we hold a reference; active: where the caller lives */
	struct tqp_asker asker;		/* active: who connects, from the first socket on */
	bool asked;			/* asker is known */
	struct iw_cm_id *cm_id;		/* we hold a reference; NULL before accept */
	struct tqp_qp *qp;		/* we hold a reference, and qp->ep is us */
	struct tqp_conn *conn;		/* we hold a reference; from ATTACHED on */
	struct tqp_listener *listener;	/* we hold a reference; passive, until REQUESTED */
	struct list_head node;		/* listener->half_open, under its lock */
	struct delayed_work work;
	unsigned long deadline;		/* jiffies; 0: none */
	unsigned long retry_at;		/* jiffies; while CONNECTING without a socket */
	u32 retry_ms;			/* the next pause */
	u16 ird, ord;			/* ours, then what both ends agreed to */
};

/* The device's counters end when the core lets it go; an ep keeps its memory for longer. */
static inline void tqp_ep_count(const struct tqp_ep *ep, enum tqp_counter c, u64 n)
{
	struct tqp_counters __percpu *counters;

	rcu_read_lock();
	counters = READ_ONCE(ep->dev->counters);
	if (counters)
		this_cpu_add(counters->v[c], n);
	rcu_read_unlock();
}

/* ---- cm.c: what iw_cm calls ---- */
int tqp_cm_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int tqp_cm_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int tqp_cm_reject(struct iw_cm_id *cm_id, const void *private_data, u8 bytes);
struct ib_qp *tqp_cm_get_qp(struct ib_device *ib, int qpn);
void tqp_cm_add_ref(struct ib_qp *ibqp);
void tqp_cm_rem_ref(struct ib_qp *ibqp);

/* Start to connect; ep->mutex. */
int tqp_ep_connect(struct tqp_ep *ep);
/* The network namespace that the caller of connect, accept or listen lives in, or NULL. */
struct net *tqp_cm_net(const struct iw_cm_id *cm_id);
/* An unbound socket for @cm_id's family. */
int tqp_cm_socket(struct net *net, const struct iw_cm_id *cm_id, struct socket **sock);

/* ---- cm_listen.c ---- */
int tqp_cm_create_listen(struct iw_cm_id *cm_id, int backlog);
int tqp_cm_destroy_listen(struct iw_cm_id *cm_id);
/* The ep is half open no more; idempotent. */
void tqp_listener_leave(struct tqp_ep *ep);
void tqp_listener_put(struct tqp_listener *listener);

/* ---- cm_ep.c: the steps of a connection ---- */
void tqp_ep_work(struct work_struct *work);
/* Join with the QP; ep->mutex. */
int tqp_ep_attach(struct tqp_ep *ep);

/* ---- cm_event.c: what iw_cm is told ---- */
int tqp_ep_tell_request(struct tqp_ep *ep);
void tqp_ep_tell_connected(struct tqp_ep *ep, int status);
void tqp_ep_tell_closed(struct tqp_ep *ep);

/* ---- cm_life.c: for the device ---- */
void tqp_ep_abort(struct tqp_ep *ep);			/* it ends, soon; any context */
void tqp_cm_abort_device(struct tqp_device *dev);	/* all of a device's */
void tqp_cm_exit(void);					/* returns when none is left */

/* ---- cm_life.c: an ep's birth and end ---- */
/* In the table, locked, with one reference that is the caller's beside the table's. */
struct tqp_ep *tqp_ep_create(struct tqp_device *dev, enum tqp_ep_state state);
struct tqp_ep *tqp_ep_find(struct tqp_device *dev, u32 id);
struct tqp_ep *tqp_ep_get(struct tqp_ep *ep);
void tqp_ep_put(struct tqp_ep *ep);
void tqp_ep_deadline(struct tqp_ep *ep, u32 ms);	/* 0: none */
/*
 * Reserve the QP for this ep, and give its reference, or an error.  Sleeps TQP_CM_CLAIM_MS at most:
 * not under the mutex of an ep that its socket or a timer may wake.
 */
struct tqp_qp *tqp_ep_claim(struct tqp_ep *ep, u32 qpn);
/* Undo that. */
void tqp_ep_unclaim(struct tqp_ep *ep, struct tqp_qp *qp);
/* Let go of everything.  @reset: the peer gets a RST; else a FIN if TCP allows.  ep->mutex. */
void tqp_ep_close(struct tqp_ep *ep, bool reset);
/* Look at it soon; any context. */
void tqp_ep_wake(struct tqp_ep *ep);

#endif
