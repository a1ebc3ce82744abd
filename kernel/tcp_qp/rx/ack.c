// SPDX-License-Identifier: GPL-2.0
/*
 * The ACK of a message's end is not late.
 *
 * A send is done when its end is acknowledged.  TCP's delayed ACK, up to 40 ms,
 * hopes for data of ours that carries it: on a connection that answered before,
 * or behind a lone full segment.  If none comes within TQP_ACK_DELAY_US, or
 * TQP_ACK_BUSY_US where messages follow each other, we send the ACK.
 *
 * A message costs no timer: one that runs stays, and when it ends looks at when the last
 * message came.  No more ACKs than segments received: each is one that TCP owes, and
 * each that is sent, by whomever, settles it.
 */
#include <linux/moduleparam.h>
#include "handshake/handshake.h"
#include "rx/rx.h"

static bool prompt_acks;
module_param(prompt_acks, bool, 0644);
MODULE_PARM_DESC(prompt_acks,
		 "acknowledge a message's end without TCP's delay (default N: its timer costs spinning programs)");

/* Microseconds since TCP took what came last. */
static s64 tqp_ack_age_us(const struct tqp_conn *conn)
{
	return ktime_to_us(ktime_get()) - (s64)conn->rx.end_us;
}

/* Microseconds until it should be looked at again; 0: it is over.  sk lock. */
static s64 tqp_ack_look(struct tqp_conn *conn)
{
	s64 left;

	if (conn->state == TQP_CONN_DEAD || !conn->qp || !inet_csk_ack_scheduled(conn->sk))
		return 0;
	left = TQP_ACK_DELAY_US - tqp_ack_age_us(conn);
	if (left > 0)
		return TQP_ACK_BUSY_US;	/* they talk: a timer each millisecond would cost them more */
	tqp_count(conn->dev, TQP_C_rx_prompt_acks, 1);
	tqp_send_ack(conn);
	return 0;
}

/* Softirq.  It has a reference to the conn. */
static enum hrtimer_restart tqp_ack_timer(struct hrtimer *timer)
{
	struct tqp_conn *conn = container_of(timer, struct tqp_conn, rx.ack_timer);
	struct sock *sk = conn->sk;
	s64 left;

	bh_lock_sock(sk);
	/* who owns it may do so for long, so the look again is later each time */
	left = sock_owned_by_user(sk) ? clamp_t(s64, tqp_ack_age_us(conn), TQP_ACK_DELAY_US,
						TQP_ACK_OWNED_MAX_US) : tqp_ack_look(conn);
	conn->rx.ack_watched = left;
	bh_unlock_sock(sk);
	if (left) {
		hrtimer_set_expires(timer, ktime_add_us(ktime_get(), left));
		return HRTIMER_RESTART;
	}
	tqp_conn_put(conn);
	return HRTIMER_NORESTART;
}

void tqp_ack_watch(struct tqp_conn *conn)
{
	if (!READ_ONCE(prompt_acks))
		return;
	conn->rx.end_us = tcp_sk(conn->sk)->tcp_mstamp;
	if (conn->rx.ack_watched)
		return;
	conn->rx.ack_watched = true;
	tqp_conn_get(conn);
	hrtimer_start(&conn->rx.ack_timer, ns_to_ktime((u64)TQP_ACK_DELAY_US * NSEC_PER_USEC),
		      HRTIMER_MODE_REL_PINNED_SOFT);
}

void tqp_ack_init(struct tqp_conn *conn)
{
	hrtimer_setup(&conn->rx.ack_timer, tqp_ack_timer, CLOCK_MONOTONIC,
		      HRTIMER_MODE_REL_PINNED_SOFT);
}

void tqp_ack_cancel(struct tqp_conn *conn)
{
	if (hrtimer_cancel(&conn->rx.ack_timer))
		tqp_conn_put(conn);
}
