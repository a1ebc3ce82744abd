// SPDX-License-Identifier: GPL-2.0
/*
 * Works that find the socket lock taken.
 *
 * A process may keep the lock for as long as it likes, as in a page fault that it answers
 * itself, and a work queue runs so many works at a time and no more: were ours to sleep for
 * such locks, those of everybody would come to a stop.  So a work leaves a note and ends, and
 * whoever lets go of the lock queues it, by tqp_release_cb().
 */
#include "conn/conn.h"

bool tqp_lock_or_defer(struct tqp_conn *conn, enum tqp_deferred work)
{
	struct sock *sk = conn->sk;
	bool owned, closed;

	spin_lock_bh(&sk->sk_lock.slock);
	owned = sock_owned_by_user_nocheck(sk);
	closed = !conn->socket.installed && !conn->socket.undone;
	if (!owned)
		sk->sk_lock.owned = 1;
	else if (conn->socket.installed)
		WRITE_ONCE(conn->deferred, conn->deferred | work);
	spin_unlock_bh(&sk->sk_lock.slock);

	if (!owned)
		mutex_acquire(&sk->sk_lock.dep_map, 0, 1, _RET_IP_);	/* as lock_sock() does */
	else if (closed)
		lock_sock(sk);		/* no process has it any more */
	return !owned || closed;
}

static void tqp_deferred_turn(struct tqp_conn *conn)
{
	tqp_conn_get(conn);
	if (!queue_work(tqp_wq, &conn->tx.work))
		tqp_conn_put(conn);
}

void tqp_deferred_queue(struct tqp_conn *conn)
{
	u8 deferred = conn->deferred;

	lockdep_assert_held(&conn->sk->sk_lock.slock);
	WRITE_ONCE(conn->deferred, 0);
	if (deferred & TQP_DEFERRED_RTR)
		tqp_queue_now(tqp_conn_get(conn), &conn->handshake.work);
	if (deferred & TQP_DEFERRED_PROBE)
		tqp_queue_now(tqp_conn_get(conn), &conn->credit.probe_work);
	if (deferred & TQP_DEFERRED_RX)
		tqp_queue_now(tqp_conn_get(conn), &conn->rx.work);
	if (deferred & TQP_DEFERRED_TURN)
		tqp_deferred_turn(conn);
	if (deferred & TQP_DEFERRED_END)
		tqp_end_kick(conn);
	if (deferred & TQP_DEFERRED_BELL)
		queue_delayed_work(tqp_wq, conn->bell, 0);
}

void tqp_deferred_forget(struct tqp_conn *conn, enum tqp_deferred work)
{
	spin_lock_bh(&conn->sk->sk_lock.slock);
	WRITE_ONCE(conn->deferred, conn->deferred & ~work);
	spin_unlock_bh(&conn->sk->sk_lock.slock);
}
