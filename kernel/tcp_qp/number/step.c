// SPDX-License-Identifier: GPL-2.0
/* The steps of a number: see the states in number.h. */
#include <net/sock.h>
#include <net/tcp.h>
#include "control/control.h"
#include "number/number.h"

/* ---- what both sides say ---- */

int tqp_number_send_hello(struct tqp_number *number)
{
	const struct tqp_hello_number say = {
		.dest_qpn = number->dest_qpn,
		.src_qpn = number->qp->qpn,
		.rq_psn = number->rq_psn,
	};

	number->hs.tx_bytes = tqp_hello_build_number(number->hs.tx, &say);
	return tqp_hello_send(&number->hs);
}

static bool tqp_number_matches(const struct tqp_number *number, const struct sock *sk,
			       const struct tqp_hello_number *said)
{
	struct in6_addr local, remote;

	tqp_number_ends(sk, &local, &remote);
	return ipv6_addr_equal(&local, &number->local) &&
	       ipv6_addr_equal(&remote, &number->remote) &&
	       said->dest_qpn == number->qp->qpn && said->src_qpn == number->dest_qpn;
}

/*
 * A peer that expects another sequence number would take none of our messages: they
 * wait until their time is over.  The other direction is another matter.
 */
void tqp_number_check_psn(struct tqp_number *number)
{
	struct tqp_qp *qp = number->qp;

	lockdep_assert_held(&qp->mutex);
	if (!number->peer_known)
		return;
	WRITE_ONCE(qp->psn_mismatch, (qp->attr.sq_psn ^ number->peer_rq_psn) & TQP_PSN_MAX);
	if (qp->psn_mismatch)	/* connected it may be all the same, from before its RTS */
		WRITE_ONCE(qp->number_waits, true);
}

static void tqp_number_forget_peer(struct tqp_number *number)
{
	lockdep_assert_held(&number->qp->mutex);
	number->peer_known = false;
	WRITE_ONCE(number->qp->psn_mismatch, false);
}

unsigned long tqp_number_timeout(struct tqp_qp *qp)
{
	u64 ms = tqp_qp_retries_ms(qp);

	return ms == U64_MAX ? 0 :
	       msecs_to_jiffies(clamp_t(u64, ms, TQP_NUMBER_SEND_MIN_MS, TQP_NUMBER_SEND_MAX_MS));
}

/* ---- attach ---- */

static void tqp_number_go(struct tqp_number *number, enum tqp_number_state state, u32 ms)
{
	WRITE_ONCE(number->state, state);
	number->deadline = ms ? (jiffies + msecs_to_jiffies(ms)) ?: 1 : 0;
}

static int tqp_number_join(struct tqp_number *number, const struct tqp_hello_number *said)
{
	const struct tcp_qp_attach_req req = {
		.flags = TCP_QP_ATTACH_F_NOWAIT,
		.timeout_ms = TQP_NUMBER_RTR_MS,
	};
	struct tcp_qp_attach_resp resp = {};
	struct tqp_qp *qp = number->qp;
	int err;

	lockdep_assert_held(&qp->mutex);
	if (qp->number != number)
		return -ECONNABORTED;
	/* before there is a connection: what is posted may go from then on */
	number->peer_rq_psn = said->rq_psn;
	number->peer_known = true;
	if (tqp_qp_state(qp) == IB_QPS_RTS)	/* else RTS brings our own */
		tqp_number_check_psn(number);
	err = tqp_qp_attach(qp, &number->owner, number->hs.sock, &req, &resp);
	if (err)
		tqp_number_forget_peer(number);
	else
		number->conn = tqp_conn_get(qp->conn);
	return err;
}

int tqp_number_attach(struct tqp_number *number, const struct tqp_hello_number *said)
{
	int err;

	lockdep_assert_held(&number->mutex);
	tqp_hello_uninstall(&number->hs);
	if (tqp_hello_unread(&number->hs))
		return -EPROTO;
	mutex_lock(&number->qp->mutex);
	err = tqp_number_join(number, said);
	mutex_unlock(&number->qp->mutex);
	if (!err)
		tqp_number_go(number, TQP_NUMBER_ATTACHED, 0);
	return err;
}

/* Without a connection again: the active side tries anew, the passive side waits for it to. */
static void tqp_number_again(struct tqp_number *number)
{
	tqp_hello_release(&number->hs, true);
	number->hs.rx_bytes = 0;
	number->retry_at = jiffies + msecs_to_jiffies(number->retry_ms);
	number->retry_ms = min(number->retry_ms * 2, (u32)TQP_NUMBER_RETRY_LAST_MS);
	tqp_number_go(number, TQP_NUMBER_WAIT, 0);
	if (!number->active)
		tqp_number_unpark(number->net, number->qp->qpn);
}

/* ---- active side ---- */

static int tqp_number_step_wait(struct tqp_number *number)
{
	int err;

	if (!number->active || time_before(jiffies, number->retry_at))
		return -EAGAIN;
	err = tqp_number_open(number);
	if (err)
		return err;
	tqp_number_go(number, TQP_NUMBER_CONNECTING, 0);
	return 0;
}

static int tqp_number_step_connecting(struct tqp_number *number)
{
	int err = tqp_number_connect(number);

	if (!err)
		err = tqp_number_send_hello(number);
	if (err)
		return err;
	tqp_count(number->qp->dev, TQP_C_number_connects, 1);
	tqp_number_go(number, TQP_NUMBER_HELLO, TQP_NUMBER_ANSWER_MS);
	return 0;
}

static int tqp_number_step_hello(struct tqp_number *number)
{
	struct tqp_hello_number said;
	int err = tqp_hello_read(&number->hs, TQP_HELLO_NUMBER);

	if (err)
		return err;
	if (tqp_hello_get_number(number->hs.rx, &said) ||
	    !tqp_number_matches(number, number->hs.sock->sk, &said))
		return -EPROTO;
	return tqp_number_attach(number, &said);
}

/* ---- passive side ---- */

/* The socket is the number's, and no request's any more. */
static void tqp_number_adopt(struct tqp_number *number, struct tqp_hello_sock *hs)
{
	tqp_hello_uninstall(hs);
	number->hs.sock = hs->sock;
	hs->sock = NULL;
	tqp_number_tune(number);
}

static int tqp_number_take(struct tqp_number *number, struct tqp_hello_sock *hs,
			   const struct tqp_hello_number *said)
{
	if (number->active || !tqp_number_matches(number, hs->sock->sk, said))
		return -ECONNREFUSED;
	/* one that has the QP and does not say rtr keeps the others waiting, for a while */
	if (number->state == TQP_NUMBER_ATTACHED && !READ_ONCE(number->conn->handshake.rtr_seen))
		return -EAGAIN;
	if (number->state != TQP_NUMBER_WAIT)
		return -ECONNREFUSED;
	tqp_number_adopt(number, hs);
	if (tqp_asker_give(&number->asker, number->hs.sock->sk) ||
	    tqp_number_send_hello(number) || tqp_number_attach(number, said))
		tqp_number_again(number);
	return 0;
}

int tqp_number_offer(struct tqp_number *number, struct tqp_hello_sock *hs,
		     const struct tqp_hello_number *said)
{
	int err = -EAGAIN;

	mutex_lock(&number->mutex);
	if (!READ_ONCE(number->aborted))
		err = tqp_number_take(number, hs, said);
	mutex_unlock(&number->mutex);
	return err;
}

/* ---- both, with a QP ---- */

static void tqp_number_connected(struct tqp_number *number)
{
	struct tqp_qp *qp = number->qp;

	mutex_lock(&qp->mutex);
	if (qp->number == number && !qp->psn_mismatch && READ_ONCE(qp->number_waits)) {
		tqp_count(qp->dev, TQP_C_number_established, 1);
		WRITE_ONCE(qp->number_waits, false);
		WRITE_ONCE(number->send_by, 0);
	}
	mutex_unlock(&qp->mutex);
}

/*
 * The conn has ended.  A QP that is in error keeps it until it is reset; one that is not
 * goes on without, and hears of its peer's end by the next send.
 */
static void tqp_number_part(struct tqp_number *number)
{
	struct tqp_qp *qp = number->qp;

	mutex_lock(&qp->mutex);
	if (qp->number == number && tqp_qp_state(qp) != IB_QPS_ERR) {
		if (qp->conn == number->conn)
			tqp_conn_detach(qp);
		tqp_number_forget_peer(number);
		WRITE_ONCE(qp->number_waits, true);
	}
	mutex_unlock(&qp->mutex);
}

static void tqp_number_ended(struct tqp_number *number)
{
	bool never = tqp_conn_never_began(number->conn);

	tqp_number_part(number);
	tqp_conn_put(number->conn);
	number->conn = NULL;
	if (never && tqp_qp_state(number->qp) != IB_QPS_ERR) {
		tqp_number_again(number);
		tqp_number_posted(number->qp);	/* what came while it seemed to be connected */
		return;
	}
	tqp_hello_release(&number->hs, false);
	tqp_number_go(number, TQP_NUMBER_LOST, 0);
}

static int tqp_number_step_attached(struct tqp_number *number)
{
	struct tqp_conn *conn = number->conn;
	bool ended = smp_load_acquire(&conn->end.over);	/* pairs with tqp_conn_ended() */

	if (READ_ONCE(conn->handshake.rtr_seen) && READ_ONCE(number->qp->number_waits))
		tqp_number_connected(number);
	if (!ended)
		return -EAGAIN;
	tqp_number_ended(number);
	return 0;
}

/* ---- a peer that does not answer any more ---- */

/*
 * TCP waits for it, and it has said nothing since the last look; sk lock.  A closed window is
 * probed ever more seldom: that the last probe was answered is enough.
 */
static bool tqp_number_silent(const struct tqp_number *number, const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	sock_owned_by_me(sk);
	return (tp->packets_out || inet_csk(sk)->icsk_probes_out) &&
	       (s32)(tp->rcv_tstamp - number->silent_since) <= 0;
}

/*
 * IBTA's timeout, from the first transmission that nothing came after.  Not
 * TCP_USER_TIMEOUT: it counts the time of a closed window, too, and a receiver may be as
 * slow to post as it likes.
 */
static void tqp_number_watch(struct tqp_number *number)
{
	unsigned long timeout = tqp_number_timeout(number->qp);
	struct sock *sk = number->conn->sk;

	lock_sock(sk);
	if (!tqp_number_silent(number, sk))
		number->silent_since = tcp_jiffies32;
	else if (tcp_jiffies32 - number->silent_since >= timeout)
		tqp_conn_fail(number->conn, TCP_QP_REASON_PEER_CLOSED);
	release_sock(sk);
	number->watch_at = (jiffies + timeout / TQP_NUMBER_LOOKS) ?: 1;
}

static void tqp_number_keep_watch(struct tqp_number *number)
{
	if (number->state != TQP_NUMBER_ATTACHED || READ_ONCE(number->qp->number_waits) ||
	    !tqp_number_timeout(number->qp)) {
		number->watch_at = 0;
	} else if (!number->watch_at) {
		number->silent_since = tcp_jiffies32;
		number->watch_at = jiffies ?: 1;
	}
	if (number->watch_at && time_after_eq(jiffies, number->watch_at))
		tqp_number_watch(number);
}

/* ---- sends that nobody will take ---- */

static void tqp_number_fail_sends(struct tqp_number *number)
{
	struct tqp_qp *qp = number->qp;
	bool moved;

	lockdep_assert_held(&qp->mutex);
	if (qp->number != number || !READ_ONCE(qp->number_waits) ||
	    tqp_qp_state(qp) != IB_QPS_RTS || !tqp_ring_posted(qp->sq, qp->sq->index))
		return;
	if (qp->conn)
		tqp_conn_detach(qp);	/* it has sent nothing */
	tqp_count(qp->dev, TQP_C_number_unreachable, 1);
	moved = tqp_qp_error(qp, -1);
	tqp_qp_flush_unreachable(qp);
	if (moved && qp->srq)
		tqp_qp_raise(qp, IB_EVENT_QP_LAST_WQE_REACHED);
}

/* IBTA: the retries of the oldest are exceeded, and those behind it are flushed. */
static void tqp_number_give_up(struct tqp_number *number)
{
	mutex_lock(&number->qp->mutex);
	tqp_number_fail_sends(number);
	mutex_unlock(&number->qp->mutex);
	WRITE_ONCE(number->send_by, 0);
	if (tqp_qp_state(number->qp) != IB_QPS_ERR)
		return;
	if (number->conn)
		tqp_conn_put(number->conn);
	number->conn = NULL;
	tqp_hello_release(&number->hs, true);
	tqp_number_go(number, TQP_NUMBER_LOST, 0);
}

static bool tqp_number_past(unsigned long by)
{
	return by && time_after_eq(jiffies, by);
}

static bool tqp_number_hopeless(const struct tqp_number *number)
{
	return tqp_number_past(READ_ONCE(number->send_by)) ||
	       (number->state == TQP_NUMBER_LOST && READ_ONCE(number->qp->number_waits));
}

/* ---- the work ---- */

static void tqp_number_close(struct tqp_number *number)
{
	struct tqp_qp *qp = number->qp;

	if (number->state == TQP_NUMBER_CLOSED)
		return;
	tqp_number_go(number, TQP_NUMBER_CLOSED, 0);
	tqp_hello_release(&number->hs, false);
	if (number->conn)
		tqp_conn_put(number->conn);
	number->conn = NULL;
	tqp_number_unlisten(number->net);
	/* or the module waits at its end for a deadline that means nothing any more */
	if (cancel_delayed_work(&number->work))
		tqp_number_put(number);
	tqp_qp_put(qp);		/* last: who destroys it waits for this */
}

static int tqp_number_step(struct tqp_number *number)
{
	switch (number->state) {
	case TQP_NUMBER_WAIT:
		return tqp_number_step_wait(number);
	case TQP_NUMBER_CONNECTING:
		return tqp_number_step_connecting(number);
	case TQP_NUMBER_HELLO:
		return tqp_number_step_hello(number);
	case TQP_NUMBER_ATTACHED:
		return tqp_number_step_attached(number);
	case TQP_NUMBER_LOST:
	case TQP_NUMBER_CLOSED:
		break;
	}
	return -EAGAIN;
}

static void tqp_number_run(struct tqp_number *number)
{
	int err = 0;

	if (READ_ONCE(number->aborted)) {
		tqp_number_close(number);
		return;
	}
	while (!err)
		err = tqp_number_step(number);
	if (err != -EAGAIN || tqp_number_past(number->deadline))
		tqp_number_again(number);
	if (tqp_number_hopeless(number))
		tqp_number_give_up(number);
	tqp_number_keep_watch(number);
}

/* Of two times in jiffies, of which 0 is none. */
static unsigned long tqp_number_sooner(unsigned long a, unsigned long b)
{
	if (!a || !b)
		return a ?: b;
	return time_before(a, b) ? a : b;
}

/* Jiffies until there is something to do, or -1. */
static long tqp_number_left(const struct tqp_number *number)
{
	bool retry = number->state == TQP_NUMBER_WAIT && number->active;
	unsigned long by = retry ? number->retry_at ?: 1 : number->deadline;

	by = tqp_number_sooner(by, READ_ONCE(number->send_by));
	by = tqp_number_sooner(by, number->watch_at);
	return by ? max((long)(by - jiffies), 1L) : -1;
}

void tqp_number_work(struct work_struct *work)
{
	struct tqp_number *number = container_of(to_delayed_work(work), struct tqp_number, work);
	long left;

	mutex_lock(&number->mutex);
	if (number->state != TQP_NUMBER_CLOSED)
		tqp_number_run(number);
	left = number->state == TQP_NUMBER_CLOSED ? -1 : tqp_number_left(number);
	if (left > 0) {
		kref_get(&number->ref);
		if (!queue_delayed_work(tqp_wq, &number->work, left))
			tqp_number_put(number);
	}
	mutex_unlock(&number->mutex);
	tqp_number_put(number);
}
