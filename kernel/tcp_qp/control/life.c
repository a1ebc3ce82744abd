// SPDX-License-Identifier: GPL-2.0
/* A conn's birth and end: its works, and what it has of others. */
#include <linux/delay.h>
#include "control/control.h"
#include "handshake/handshake.h"
#include "rx/rx.h"
#include "socket/socket.h"
#include "tx/tx.h"

/* What is left of a turn, whoever's it was.  True: more is left, and somebody waits for the lock. */
static bool tqp_conn_turn(struct tqp_conn *conn)
{
	bool watched = tqp_watch_is_on(conn);	/* then there may be receives that nobody rang for, too */

	if (watched)
		tqp_credit_update(conn);
	tqp_tx_run(conn);
	if (conn->rx.yielded || watched)
		tqp_rx_run(conn);
	/* before it is released: whoever waits by now waited while we had it */
	return (conn->tx.turn <= 0 || conn->rx.yielded) &&
	       (READ_ONCE(conn->deferred) || wq_has_sleeper(&conn->sk->sk_lock.wq));
}

/*
 * A turn that leaves work comes back at once, and would have the lock again before a
 * thread that sleeps for it wakes up, or a deferred work runs: a system call would not end.
 */
static void tqp_conn_turn_work(struct work_struct *work)
{
	struct tqp_conn *conn = container_of(work, struct tqp_conn, tx.work);
	bool awaited;

	if (tqp_lock_or_defer(conn, TQP_DEFERRED_TURN)) {
		awaited = tqp_conn_turn(conn);
		release_sock(conn->sk);
		if (awaited)
			msleep(TQP_YIELD_MS);
	}
	tqp_conn_put(conn);
}

static void tqp_conn_free_work(struct work_struct *work)
{
	struct tqp_conn *conn = container_of(to_rcu_work(work), struct tqp_conn, end.free_work);

	if (conn->owner)
		conn->owner->ops->put(conn->owner);
	tqp_hook_put(sock_net(conn->sk));	/* the socket keeps the namespace */
	sock_put(conn->sk);
	tqp_conn_free(conn);
}

struct tqp_conn *tqp_conn_create(struct tqp_qp *qp, struct tqp_conn_owner *owner, struct sock *sk)
{
	struct tqp_conn *conn = tqp_conn_alloc(qp);

	if (!conn)
		return NULL;
	if (tqp_hook_get(sock_net(sk))) {
		tqp_conn_free(conn);
		return NULL;
	}
	if (owner)
		owner->ops->get(owner);
	conn->owner = owner;
	sock_hold(sk);
	conn->sk = sk;
	INIT_DELAYED_WORK(&conn->handshake.work, tqp_rtr_work);
	INIT_DELAYED_WORK(&conn->credit.probe_work, tqp_probe_work);
	INIT_DELAYED_WORK(&conn->rx.work, tqp_rx_work);
	INIT_WORK(&conn->tx.work, tqp_conn_turn_work);
	tqp_share_init(conn);
	INIT_WORK(&conn->end.work, tqp_conn_fail_work);
	timer_setup(&conn->end.late, tqp_conn_fail_late, 0);
	return conn;
}

int tqp_conn_init(void)
{
	int err;

	err = tqp_conn_cache_init(tqp_conn_free_work);
	if (err)
		return err;
	err = tqp_ulp_init();
	if (err)
		goto exit_cache;
	err = tqp_hook_init();
	if (err)
		goto exit_ulp;
	return 0;
exit_ulp:
	tqp_ulp_exit();
exit_cache:
	tqp_conn_cache_exit();
	return err;
}

void tqp_conn_exit(void)
{
	tqp_conn_wait_gone();
	tqp_hook_exit();
	tqp_ulp_exit();
	tqp_conn_cache_exit();
}
