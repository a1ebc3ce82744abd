/* SPDX-License-Identifier: GPL-2.0 */
/* How a conn begins and ends. */
#ifndef TQP_CONTROL_H
#define TQP_CONTROL_H

#include "conn/conn.h"

/* ---- revoke.c ---- */
struct ib_mr *tqp_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 bytes, u64 iova, int access,
			      TQP_DMAH_PARAM struct ib_udata *udata);
struct ib_mr *tqp_reg_dmabuf_mr(struct ib_pd *ibpd, u64 offset, u64 bytes, u64 iova, int fd,
				int access, TQP_DMAH_PARAM struct uverbs_attr_bundle *attrs);
int tqp_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);
int tqp_dealloc_mw(struct ib_mw *ibmw);

/* ---- attach.c, detach.c and life.c ---- */
/*
 * Join with @sock, which is @owner's or, if that is NULL, an application's.  Sleeps; under
 * qp->mutex.  @resp is filled on success and where a reason is known.
 */
int tqp_qp_attach(struct tqp_qp *qp, struct tqp_conn_owner *owner, struct socket *sock,
		  const struct tcp_qp_attach_req *req, struct tcp_qp_attach_resp *resp);
/* Sends were posted (or receives: same doorbell).  Process context, sleeps. */
void tqp_conn_doorbell(struct tqp_qp *qp);
/*
 * Part QP and socket; sleeps; under qp->mutex.  When it returns nothing on
 * the socket's side touches the QP, its rings, CQs or receive buffers.
 */
void tqp_conn_detach(struct tqp_qp *qp);
/* A conn that was told to end has; sleeps; under qp->mutex. */
void tqp_conn_wait_end(struct tqp_qp *qp);
void tqp_conn_info(struct tqp_qp *qp, struct tcp_qp_info *info);
/* What struct tcp_qp_info has no field for; zeros without a conn. */
struct tqp_conn_details {
	u64 socket_cookie;		/* inet_diag's, which makes it; 0: it has not shown the socket yet */
	u32 tx_credits;			/* messages that the peer has said it has receives for */
};
void tqp_conn_details(struct tqp_qp *qp, struct tqp_conn_details *details);
int tqp_conn_init(void);			/* for the module: ULP, hooks */
void tqp_conn_exit(void);

/* ---- life.c ---- */
/* For @sk, with a reference of the caller's and one to @owner, if there is any; process context. */
struct tqp_conn *tqp_conn_create(struct tqp_qp *qp, struct tqp_conn_owner *owner, struct sock *sk);

/* ---- attach.c, detach.c ---- */
/* The QP's conn with a reference of the caller's own, or NULL; process context. */
struct tqp_conn *tqp_qp_conn_get(struct tqp_qp *qp);
/* Nothing on the socket's side touches the QP any more. */
void tqp_conn_ended(struct tqp_conn *conn);
/* The socket lock's holder looks at both queues, as a doorbell asks. */
void tqp_conn_look(struct tqp_conn *conn);

/* ---- bell.c; sleeps, under qp->mutex ---- */
/* A bell on the QP's send queue, instead of what it has. */
int tqp_bell_set(struct tqp_qp *qp, const struct tcp_qp_bell *req);
/* No bell any more; if @open, what it held goes.  When it returns nobody rings. */
void tqp_bell_end(struct tqp_conn *conn, bool open);

/* ---- end.c ---- */
/*
 * Did it begin for neither end, or for one alone?  The peer's QP was not there, or may not have
 * heard of ours; and no byte of a message came or went, so that another connection repeats and
 * loses none.  sk lock, or after the end.
 */
static inline bool tqp_conn_never_began(const struct tqp_conn *conn)
{
	const struct tcp_sock *tp = tcp_sk(conn->sk);

	if (!READ_ONCE(conn->handshake.rtr_seen))
		return true;
	return !READ_ONCE(conn->handshake.rtr_acked) && !tqp_tx_begun(conn) &&
	       !conn->rx.started && tp->rcv_nxt == tp->copied_seq;
}

/* The connection ends with a RST; takes the sk lock. */
void tqp_end_abort(struct tqp_conn *conn);
void tqp_conn_fail_work(struct work_struct *work);
void tqp_conn_fail_late(struct timer_list *timer);

#endif
