// SPDX-License-Identifier: GPL-2.0
/* The steps of a connection: see the states in cm.h. */
#include <net/tcp.h>
#include "cm/cm.h"
#include "control/control.h"

/* ---- attach ---- */

/*
 * What both ends agreed to.  An RNIC's memory is guarded by its keys alone, so
 * rdma_cm's users set no access flags, and the active side's not even once.
 */
static void tqp_ep_set_attr(struct tqp_ep *ep)
{
	struct tqp_qp *qp = ep->qp;
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	qp->attr.qp_access_flags |= IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |
				    IB_ACCESS_REMOTE_ATOMIC;
	qp->attr.max_dest_rd_atomic = ep->ird;
	qp->attr.max_rd_atomic = ep->ord;
	spin_unlock_irqrestore(&qp->lock, flags);
}

int tqp_ep_attach(struct tqp_ep *ep)
{
	struct tcp_qp_attach_req req = {
		.flags = TCP_QP_ATTACH_F_NOWAIT,
		.timeout_ms = TQP_CM_RTR_MS,
	};
	struct tcp_qp_attach_resp resp = {};
	int err;

	lockdep_assert_held(&ep->mutex);
	tqp_hello_uninstall(&ep->hs);
	if (tqp_hello_unread(&ep->hs))
		return -EPROTO;
	tqp_ep_set_attr(ep);
	mutex_lock(&ep->qp->mutex);
	err = tqp_qp_attach(ep->qp, &ep->owner, ep->hs.sock, &req, &resp);
	if (!err)
		ep->conn = tqp_conn_get(ep->qp->conn);
	mutex_unlock(&ep->qp->mutex);
	if (err)
		return err;
	WRITE_ONCE(ep->state, TQP_EP_ATTACHED);
	tqp_ep_deadline(ep, TQP_CM_RTR_MS);
	return 0;
}

/* ---- active side ---- */

/* Nobody listens, yet. */
static void tqp_ep_refused(struct tqp_ep *ep)
{
	tqp_hello_release(&ep->hs, false);
	ep->retry_at = jiffies + msecs_to_jiffies(ep->retry_ms);
	ep->retry_ms *= 2;
}

static int tqp_ep_step_refused(struct tqp_ep *ep)
{
	int err;

	if (time_before(jiffies, ep->retry_at))
		return -EAGAIN;
	err = tqp_ep_connect(ep);
	return err ?: -EAGAIN;
}

static int tqp_ep_step_connecting(struct tqp_ep *ep)
{
	struct sockaddr_unsized *to = (struct sockaddr_unsized *)&ep->cm_id->m_remote_addr;
	int err;

	if (!ep->hs.sock)
		return tqp_ep_step_refused(ep);
	/* the second call of a connect that does not wait gives its result */
	err = kernel_connect(ep->hs.sock, to, sizeof(ep->cm_id->m_remote_addr), O_NONBLOCK);
	if (err == -EALREADY || err == -EINPROGRESS)
		return -EAGAIN;
	if (err == -ECONNREFUSED && ep->retry_ms <= TQP_CM_REFUSED_LAST_MS) {
		tqp_ep_refused(ep);
		return -EAGAIN;
	}
	if (!err)
		err = tqp_hello_send(&ep->hs);
	if (err)
		return err;
	WRITE_ONCE(ep->state, TQP_EP_REQUEST_SENT);
	tqp_ep_deadline(ep, TQP_CM_REPLY_MS);
	return 0;
}

static int tqp_ep_step_request_sent(struct tqp_ep *ep)
{
	int err = tqp_hello_read(&ep->hs, TQP_HELLO_REPLY);

	if (err)
		return err;
	if (ep->hs.hello.flags & TQP_HELLO_F_REJECT)
		return -ECONNREFUSED;
	ep->ord = min(ep->ord, ep->hs.hello.ird);
	return tqp_ep_attach(ep);
}

/* As rdma_cm's users know them: REJECTED, UNREACHABLE, or else CONNECT_ERROR. */
static int tqp_connect_status(int err)
{
	switch (err) {
	case -EPIPE:
	case -ECONNABORTED:
	case -ENOTCONN:
	case -EPROTO:
		return -ECONNRESET;
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -EHOSTDOWN:
		return -ETIMEDOUT;
	default:
		return err;
	}
}

static void tqp_ep_connect_failed(struct tqp_ep *ep, int err)
{
	if (err == -ETIMEDOUT)
		tqp_ep_count(ep, TQP_C_cm_timeouts, 1);
	else if (err == -EPROTO)
		tqp_ep_count(ep, TQP_C_cm_garbage, 1);
	tqp_ep_tell_connected(ep, tqp_connect_status(err));
	tqp_ep_close(ep, err != -ECONNREFUSED);
}

/* ---- passive side ---- */

static int tqp_ep_step_request_wait(struct tqp_ep *ep)
{
	struct tqp_hello no = { .flags = TQP_HELLO_F_REJECT };
	int err = tqp_hello_read(&ep->hs, TQP_HELLO_REQUEST);

	if (err)
		return err;
	tqp_ep_count(ep, TQP_C_cm_requests, 1);
	WRITE_ONCE(ep->state, TQP_EP_REQUESTED);
	tqp_ep_deadline(ep, TQP_CM_DECIDE_MS);
	err = tqp_ep_tell_request(ep);
	if (err) {
		tqp_ep_count(ep, TQP_C_cm_backlog_full, err == -ENOMEM);
		ep->hs.tx_bytes = tqp_hello_build(ep->hs.tx, TQP_HELLO_REPLY, &no, NULL);
		tqp_hello_send(&ep->hs);
		tqp_ep_close(ep, false);
		return 0;
	}
	tqp_listener_leave(ep);
	return 0;
}

/* Until our application has decided, the peer has nothing more to say. */
static int tqp_ep_step_requested(struct tqp_ep *ep)
{
	u8 byte;
	int got = tqp_hello_recv(&ep->hs, &byte, sizeof(byte));

	return got < 0 ? got : -EPROTO;
}

static void tqp_ep_request_failed(struct tqp_ep *ep, int err)
{
	if (err == -ETIMEDOUT)
		tqp_ep_count(ep, TQP_C_cm_timeouts, 1);
	else if (err == -EPROTO)
		tqp_ep_count(ep, TQP_C_cm_garbage, 1);
	tqp_ep_close(ep, true);
}

/* ---- both, with a QP ---- */

static void tqp_ep_established(struct tqp_ep *ep)
{
	WRITE_ONCE(ep->state, TQP_EP_ESTABLISHED);
	tqp_ep_deadline(ep, 0);
	tqp_ep_count(ep, TQP_C_cm_established, 1);
	tqp_ep_tell_connected(ep, 0);
}

/* The conn has ended and its QP is flushed.  A passive end was accepted, so it is told both. */
static void tqp_ep_ended(struct tqp_ep *ep)
{
	int status = ep->conn->end.reason == TCP_QP_REASON_NO_PEER_QP ? -ETIMEDOUT : -ECONNRESET;

	if (ep->state == TQP_EP_ATTACHED && ep->active) {
		tqp_ep_tell_connected(ep, status);
	} else {
		if (ep->state == TQP_EP_ATTACHED)
			tqp_ep_tell_connected(ep, 0);
		tqp_ep_tell_closed(ep);
	}
	tqp_ep_close(ep, false);
}

/* End the conn; it wakes us when that is done. */
static void tqp_ep_fail_conn(struct tqp_ep *ep, enum tcp_qp_reason reason)
{
	lock_sock(ep->conn->sk);
	tqp_conn_fail(ep->conn, reason);
	release_sock(ep->conn->sk);
}

/* The peer sent FIN, but data before it still waits for receives. */
static bool tqp_ep_late(const struct tqp_ep *ep)
{
	return ep->state == TQP_EP_ESTABLISHED && !ep->deadline &&
	       READ_ONCE(ep->conn->sk->sk_shutdown) & RCV_SHUTDOWN;
}

static int tqp_ep_step_attached(struct tqp_ep *ep)
{
	struct tqp_conn *conn = ep->conn;
	bool ended = smp_load_acquire(&conn->end.over);	/* pairs with tqp_conn_ended() */

	if (ep->state == TQP_EP_ATTACHED && READ_ONCE(conn->handshake.rtr_seen))
		tqp_ep_established(ep);
	if (ended) {
		tqp_ep_ended(ep);
		return 0;
	}
	if (tqp_ep_late(ep))
		tqp_ep_deadline(ep, TQP_CM_LATE_MS);
	return -EAGAIN;
}

static void tqp_ep_attached_failed(struct tqp_ep *ep, int err)
{
	enum tcp_qp_reason reason = TCP_QP_REASON_PEER_CLOSED;

	if (err == -ETIMEDOUT && ep->state == TQP_EP_ATTACHED)
		reason = TCP_QP_REASON_NO_PEER_QP;
	tqp_ep_deadline(ep, 0);		/* it ends by itself now */
	tqp_ep_fail_conn(ep, reason);
}

/* ---- the work ---- */

static int tqp_ep_step(struct tqp_ep *ep)
{
	switch (ep->state) {
	case TQP_EP_CONNECTING:
		return tqp_ep_step_connecting(ep);
	case TQP_EP_REQUEST_SENT:
		return tqp_ep_step_request_sent(ep);
	case TQP_EP_REQUEST_WAIT:
		return tqp_ep_step_request_wait(ep);
	case TQP_EP_REQUESTED:
		return tqp_ep_step_requested(ep);
	case TQP_EP_ATTACHED:
	case TQP_EP_ESTABLISHED:
		return tqp_ep_step_attached(ep);
	case TQP_EP_CLOSED:
		break;
	}
	return -EAGAIN;
}

static void tqp_ep_failed(struct tqp_ep *ep, int err)
{
	switch (ep->state) {
	case TQP_EP_CONNECTING:
	case TQP_EP_REQUEST_SENT:
		tqp_ep_connect_failed(ep, err);
		break;
	case TQP_EP_REQUEST_WAIT:
	case TQP_EP_REQUESTED:
		tqp_ep_request_failed(ep, err);
		break;
	case TQP_EP_ATTACHED:
	case TQP_EP_ESTABLISHED:
		tqp_ep_attached_failed(ep, err);
		break;
	case TQP_EP_CLOSED:
		break;
	}
}

/* Why it must end though no step says so; 0: it need not. */
static int tqp_ep_outside(const struct tqp_ep *ep)
{
	if (READ_ONCE(ep->aborted) || READ_ONCE(ep->dev->leaving))
		return -ECONNABORTED;
	if (ep->state == TQP_EP_REQUEST_WAIT && READ_ONCE(ep->evicted))
		return -ECONNABORTED;
	if (ep->deadline && time_after_eq(jiffies, ep->deadline))
		return -ETIMEDOUT;
	return 0;
}

static void tqp_ep_run(struct tqp_ep *ep)
{
	int err = 0;

	while (ep->state != TQP_EP_CLOSED && !err)
		err = tqp_ep_step(ep);
	if (err == -EAGAIN)
		err = tqp_ep_outside(ep);
	if (err)
		tqp_ep_failed(ep, err);
}

static void tqp_ep_rearm(struct tqp_ep *ep)
{
	bool retry = ep->state == TQP_EP_CONNECTING && !ep->hs.sock;
	long left = (long)((retry ? ep->retry_at : ep->deadline) - jiffies);

	if (ep->state == TQP_EP_CLOSED || !ep->deadline)
		return;
	tqp_ep_get(ep);
	if (!queue_delayed_work(tqp_wq, &ep->work, max(left, 1L)))
		tqp_ep_put(ep);
}

void tqp_ep_work(struct work_struct *work)
{
	struct tqp_ep *ep = container_of(to_delayed_work(work), struct tqp_ep, work);

	mutex_lock(&ep->mutex);
	tqp_ep_run(ep);
	tqp_ep_rearm(ep);
	mutex_unlock(&ep->mutex);
	tqp_ep_put(ep);
}
