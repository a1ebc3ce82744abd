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
