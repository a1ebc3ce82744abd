// SPDX-License-Identifier: GPL-2.0
/* Detach: a QP parts from its socket. */
#include "control/control.h"
#include "offload/offload.h"
#include "rx/rx.h"
#include "socket/socket.h"
#include "tx/tx.h"

static void tqp_conn_cancel(struct tqp_conn *conn)
{
	tqp_watch_cancel(conn);
	tqp_share_cancel(conn);
	/* DEAD conns queue no work, but whoever lets go of the lock might what was deferred */
	if (disable_delayed_work_sync(&conn->handshake.work))
		tqp_conn_put(conn);
	if (disable_delayed_work_sync(&conn->credit.probe_work))
		tqp_conn_put(conn);
	if (disable_delayed_work_sync(&conn->rx.work))
		tqp_conn_put(conn);
	if (disable_work_sync(&conn->tx.work))
		tqp_conn_put(conn);
	if (timer_delete_sync(&conn->end.late))
		tqp_conn_put(conn);
	if (disable_work_sync(&conn->end.work))
		tqp_conn_put(conn);
}

static bool tqp_conn_told(void *of)
{
	struct tqp_conn *conn = of;

	return READ_ONCE(conn->end.told);
}

static bool tqp_conn_released(void *of)
{
	return tqp_tx_released(of);
}

/*
 * A packet in a driver's queue leaves ahead of the RST, with what its pages hold
 * by then.  The peer would take that for the message.
 */
static void tqp_conn_wait_drivers(struct tqp_conn *conn, struct tqp_qp *qp)
{
	if (!tqp_end_wait(qp->dev, qp->uctx, &conn->wait, tqp_conn_released, conn,
			  TQP_DRIVER_MS) && tqp_end_must_wait(qp->dev))
		tqp_tx_release_timeout(conn);
}

/*
 * May another have the socket?  What the NIC has put where this QP said is nobody else's.  It stops,
 * and what it had to say is with TCP: then all of it can be seen.  Without the sk lock.
 */
static bool tqp_conn_is_told_all(struct tqp_conn *conn)
{
	struct tqp_offload_device *odev = conn->dev->offload;

	if (READ_ONCE(conn->state) == TQP_CONN_DEAD || READ_ONCE(conn->rx.started) ||
	    tqp_tx_begun(conn))
		return false;
	if (conn->engine != TCP_QP_ENGINE_OFFLOAD)
		return true;
	tqp_conn_offload_stop(conn);
	return !odev->ops->rx_passed || odev->ops->rx_passed(odev);
}

/* Is there payload that is not in the skb? */
static bool tqp_placed_waits(struct sock *sk)
{
	struct sk_buff *skb;

	skb_queue_walk(&sk->sk_receive_queue, skb)
		if (skb->decrypted)
			return true;
	skb_rbtree_walk(skb, &tcp_sk(sk)->out_of_order_queue)
		if (skb->decrypted)
			return true;
	return false;
}

/* Nothing was sent or received: the socket is what it was before it had a QP.  sk lock. */
static bool tqp_conn_is_untouched(const struct tqp_conn *conn)
{
	return conn->state != TQP_CONN_DEAD && !tqp_tx_begun(conn) && !conn->rx.started &&
	       !tqp_placed_waits(conn->sk);
}

void tqp_conn_detach(struct tqp_qp *qp)
{
	struct tqp_conn *conn;
	bool outstanding, told;

	lockdep_assert_held(&qp->mutex);
	spin_lock_bh(&qp->lock);
	conn = qp->conn;
	qp->conn = NULL;
	spin_unlock_bh(&qp->lock);
	if (!conn)
		return;

	tqp_bell_end(conn, false);
	tqp_rx_settle(conn);
	/* what the peer is to be told it should be told before its connection goes */
	if (READ_ONCE(conn->end.nak.syndrome))
		tqp_end_wait(qp->dev, qp->uctx, &conn->wait, tqp_conn_told, conn,
			     2 * TQP_TERMINATE_MS);
	told = tqp_conn_is_told_all(conn);
	lock_sock(conn->sk);
	outstanding = tqp_tx_outstanding(conn) || (conn->end.nak.syndrome && !conn->end.told);
	if (told && !outstanding && tqp_conn_is_untouched(conn))
		tqp_ulp_undo(conn);
	WRITE_ONCE(conn->state, TQP_CONN_DEAD);
	tqp_tx_die(conn);
	tqp_ring_sleep(qp->sq);
	tqp_turn_end(conn);
	conn->qp = NULL;
	WRITE_ONCE(conn->end.waits, false);
	release_sock(conn->sk);

	/*
	 * Nobody must send a buffer's later contents under an old message's
	 * name: unacknowledged sends take the connection with them.
	 */
	if (outstanding) {
		tqp_end_abort(conn);
		lock_sock(conn->sk);
		tqp_tx_drop(conn);
		release_sock(conn->sk);
	}
	tqp_conn_offload_stop(conn);	/* a switch that is hung is found by this, then drivers let go */
	tqp_conn_wait_drivers(conn, qp);
	tqp_conn_cancel(conn);
	tqp_conn_ended(conn);
	tqp_conn_put(conn);
}

static bool tqp_conn_is_over(void *of)
{
	struct tqp_conn *conn = of;

	return smp_load_acquire(&conn->end.over);	/* pairs with tqp_conn_ended() */
}

void tqp_conn_wait_end(struct tqp_qp *qp)
{
	lockdep_assert_held(&qp->mutex);
	if (qp->conn)
		tqp_end_wait(qp->dev, qp->uctx, &qp->conn->wait, tqp_conn_is_over, qp->conn,
			     TQP_DRIVER_MS);
}
