// SPDX-License-Identifier: GPL-2.0
/*
 * How much of a processor's time softirq may spend on receiving for queue pairs.
 *
 * No scheduler weighs what runs in softirq: a peer that writes without end would
 * have the processor nearly for itself.  Within each window softirq has a share;
 * what comes after that is received by tx_work, a task among the others, and
 * TCP's window makes the peer wait for it.  Datagrams of UD QPs share the share.
 *
 * Another task may have the processor for as long as it likes, in real time or
 * nearly.  So softirq goes on, within its share, with what tx_work has not begun
 * for a while: the peer's READs are answered all the same.
 */
#include <linux/moduleparam.h>
#include <linux/timekeeping.h>
#include <net/inet_connection_sock.h>
#include "handshake/handshake.h"
#include "rx/rx.h"
#include "tx/tx.h"

enum {
	TQP_SHARE_WINDOW_NS = 8 * NSEC_PER_MSEC,
	TQP_SHARE_PERCENT = 50,
	TQP_SHARE_TASK_MS = 32,		/* tx_work among a few others has begun by then */
};

struct tqp_share {
	u64 began;			/* ktime_get_ns(), when the window did */
	u64 used;			/* ns of it */
};

static DEFINE_PER_CPU(struct tqp_share, tqp_shares);	/* softirq of its processor */

static unsigned int tqp_share_percent = TQP_SHARE_PERCENT;
module_param_named(softirq_percent, tqp_share_percent, uint, 0644);
MODULE_PARM_DESC(softirq_percent, "of a processor's time, that receiving in softirq may take");

static bool tqp_share_is_used_up(struct tqp_share *share, u64 now)
{
	u64 percent = READ_ONCE(tqp_share_percent);

	if (now - share->began >= TQP_SHARE_WINDOW_NS) {
		share->began = now;
		share->used = 0;
	}
	return share->used * 100 >= percent * TQP_SHARE_WINDOW_NS;
}

u64 tqp_share_now(void)
{
	return in_serving_softirq() ? ktime_get_ns() : 0;
}

bool tqp_share_enter(u64 now)
{
	return !now || !tqp_share_is_used_up(this_cpu_ptr(&tqp_shares), now);
}

void tqp_share_leave(u64 began)
{
	if (began)
		this_cpu_ptr(&tqp_shares)->used += ktime_get_ns() - began;
}

void tqp_share_task(struct tqp_conn *conn)
{
	tqp_tx_kick(conn);
	if (conn->state == TQP_CONN_DEAD)	/* detach may have looked for the last time */
		return;
	tqp_conn_get(conn);
	if (timer_reduce(&conn->rx.late, jiffies + msecs_to_jiffies(TQP_SHARE_TASK_MS)))
		tqp_conn_put(conn);
}

static void tqp_rx_since(struct tqp_conn *conn, u64 now)
{
	if (!tqp_share_enter(now)) {
		tqp_rx_yield(conn);
		return;
	}
	tqp_rx_run(conn);
	tqp_share_leave(now);
}

static void tqp_share_late(struct timer_list *timer)
{
	struct tqp_conn *conn = container_of(timer, struct tqp_conn, rx.late);
	struct sock *sk = conn->sk;

	bh_lock_sock(sk);
	if (conn->rx.yielded && sock_owned_by_user(sk))
		tqp_share_task(conn);
	else if (conn->rx.yielded)	/* tx_work has not been here */
		tqp_rx_since(conn, tqp_share_now());
	bh_unlock_sock(sk);
	tqp_conn_put(conn);
}

void tqp_share_init(struct tqp_conn *conn)
{
	timer_setup(&conn->rx.late, tqp_share_late, TIMER_PINNED);
}

void tqp_share_cancel(struct tqp_conn *conn)
{
	if (timer_delete_sync(&conn->rx.late))
		tqp_conn_put(conn);
}

void tqp_rx_ready(struct tqp_conn *conn)
{
	/* TCP looked at the clock when the packet came */
	tqp_rx_since(conn, in_serving_softirq() ? tcp_sk(conn->sk)->tcp_clock_cache : 0);
}
