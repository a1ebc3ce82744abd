// SPDX-License-Identifier: GPL-2.0
/* What a NIC has completed is received by TCP, too, before its conn ends. */
#include <net/busy_poll.h>
#include "offload/offload.h"
#include "rx/rx.h"

static bool tqp_rx_settled(void *of)
{
	struct tqp_conn *conn = of;

	return !tqp_turn_given(conn) || READ_ONCE(conn->state) == TQP_CONN_DEAD;
}

void tqp_rx_look(struct tqp_conn *conn)
{
#ifdef CONFIG_NET_RX_BUSY_POLL
	u32 napi = READ_ONCE(conn->sk->sk_napi_id);

	if (napi >= MIN_NAPI_ID && !tqp_rx_settled(conn))
		napi_busy_loop(napi, NULL, NULL, false, BUSY_POLL_BUDGET);
#endif
}

/* Is there something that the NIC has completed, and that TCP has not heard of? */
static bool tqp_rx_unheard(const struct tqp_conn *conn)
{
	return tqp_turn_given(conn) && tqp_turn_done(conn, tcp_sk(conn->sk)->rcv_nxt);
}

bool tqp_rx_is_ahead(const struct tqp_conn *conn)
{
	return !READ_ONCE(conn->handshake.peer_room) && tqp_rx_unheard(conn);
}

/*
 * What is about to be sent acknowledges what the NIC has completed, once TCP has heard of it;
 * then nothing else has to, and the peer, who may wait for both, has them at once.  It is not
 * read before: that would acknowledge it, too, by a packet of its own.  What came behind it may
 * be refused, and so is not acknowledged before that run.
 */
void tqp_rx_hear(struct tqp_conn *conn)
{
	bool visible = conn->tx.visible;
	struct sock *sk = conn->sk;

	sock_owned_by_me(sk);
	conn->tx.visible = false;
	if (!visible || conn->tx.late || !tqp_rx_unheard(conn))
		return;
	tqp_rx_look(conn);
	tqp_rx_hold_ack(conn);
	conn->rx.running = true;
	conn->rx.hears = true;
	sk_flush_backlog(sk);
	conn->rx.hears = false;
	conn->rx.running = false;
}

/* The acknowledgement that lets it go may be among what TCP hears of later. */
void tqp_rx_hear_held(struct tqp_conn *conn)
{
	sock_owned_by_me(conn->sk);
	if (tcp_send_head(conn->sk) && tqp_rx_unheard(conn))
		tqp_rx_look(conn);
}

void tqp_rx_settle(struct tqp_conn *conn)
{
	struct tqp_qp *qp;

	if (tqp_rx_settled(conn))
		return;
	lock_sock(conn->sk);
	conn->offload.turn.over = true;
	qp = conn->qp ? tqp_qp_get(conn->qp) : NULL;	/* a destroy waits for us */
	tqp_rx_run(conn);
	if (!tqp_rx_settled(conn))
		tqp_turn_take(conn);
	release_sock(conn->sk);
	if (!qp)
		return;
	tqp_rx_look(conn);
	tqp_end_settle(qp->dev, qp->uctx, &conn->wait, tqp_rx_settled, conn);
	tqp_qp_put(qp);
}
