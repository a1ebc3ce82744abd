// SPDX-License-Identifier: GPL-2.0
/*
 * The watch over a send queue: while it lasts, what is posted needs no doorbell.
 *
 * It is for who asks for it in the ring's header (tcp_qp.h; docs/verbs.md), and
 * begins when a burst of work requests was posted while some were under way, and
 * with the first request after such a burst.  A timer then looks at the producer
 * index, and has tx.work send what is new; when there was nothing new for some
 * ticks, the watch ends.  A queue that waits for something needs no timer: what it
 * waits for has it looked at again.
 */
#include <linux/slab.h>
#include "tx/tx.h"
#include "tx/wqe.h"

#define TQP_WATCH_TIME ns_to_ktime((u64)TQP_WATCH_US * NSEC_PER_USEC)

static void tqp_watch_start(struct tqp_tx_watch *watch)
{
	hrtimer_start(&watch->timer, TQP_WATCH_TIME, HRTIMER_MODE_REL_SOFT);
}

static void tqp_watch_look(struct tqp_conn *conn)
{
	tqp_count(conn->dev, TQP_C_tx_watch_looks, 1);
	tqp_tx_kick(conn);
}

/* Until detach has cancelled it, of a conn that somebody has a reference to. */
static enum hrtimer_restart tqp_watch_tick(struct hrtimer *timer)
{
	struct tqp_tx_watch *watch = container_of(timer, struct tqp_tx_watch, timer);
	u8 idle = READ_ONCE(watch->idle) + 1;

	WRITE_ONCE(watch->idle, idle);
	if (tqp_ring_user_prod(watch->ring) == READ_ONCE(watch->seen) && idle < TQP_WATCH_IDLE_TICKS)
		tqp_watch_start(watch);		/* not HRTIMER_RESTART: a run may start it meanwhile */
	else
		tqp_watch_look(watch->conn);
	return HRTIMER_NORESTART;
}

/* NULL: there is no memory, and each burst has its doorbell. */
static struct tqp_tx_watch *tqp_watch_made(struct tqp_conn *conn)
{
	struct tqp_tx_watch *watch = conn->tx.watch;

	if (watch)
		return watch;
	watch = kzalloc(sizeof(*watch), GFP_ATOMIC | __GFP_ACCOUNT | __GFP_NOWARN);
	if (!watch)
		return NULL;
	watch->conn = conn;
	watch->ring = conn->qp->sq;
	hrtimer_setup(&watch->timer, tqp_watch_tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	conn->tx.watch = watch;
	return watch;
}

void tqp_watch_cancel(struct tqp_conn *conn)
{
	if (conn->tx.watch)
		hrtimer_cancel(&conn->tx.watch->timer);
}

void tqp_watch_begin(struct tqp_conn *conn)
{
	struct tqp_tx_watch *watch;

	if (!tqp_ring_wants_watch(conn->qp->sq))
		return;
	watch = tqp_watch_made(conn);
	if (!watch)
		return;
	/* What comes after a burst is taken for the next one, once. */
	if (!watch->on && tqp_msglog_empty(&conn->tx.log))
		watch->burst = watch->burst == TQP_WATCH_BURST_MAX ? TQP_WATCH_BURST : 0;
	WRITE_ONCE(watch->seen, conn->tx.sq_next);
	tqp_ring_wake(watch->ring);	/* this run looks again before it ends */
}

/*
 * Does what comes next wait for something, or for the next turn?  Then there will
 * be a kick, or was.  Only what was copied, or found no record, waits: what is
 * posted by now may have come after the look.
 */
static bool tqp_watch_waits(const struct tqp_conn *conn)
{
	const struct tqp_tx *tx = &conn->tx;

	return tx->cur.active || tqp_train_waits(conn) || tx->wqe.valid || tx->turn <= 0 ||
	       tqp_tx_waits(tx, TQP_TX_WAIT_LOG);
}

/* Nothing waits.  Will the timer look? */
static bool tqp_watch_goes_on(struct tqp_tx_watch *watch, u32 taken)
{
	if (!taken)
		return watch->on && hrtimer_is_queued(&watch->timer);
	watch->burst = min_t(u32, watch->burst + taken, TQP_WATCH_BURST_MAX);
	if (watch->burst <= TQP_WATCH_BURST || watch->renewed == TQP_WATCH_RENEWED_MAX)
		return false;
	watch->renewed++;
	WRITE_ONCE(watch->idle, 0);
	tqp_watch_start(watch);
	return true;
}

bool tqp_watch_end(struct tqp_conn *conn)
{
	struct tqp_tx_watch *watch = conn->tx.watch;
	struct tqp_ring *sq = conn->qp->sq;
	bool may_send;
	u32 taken;

	if (!sq->awake)		/* else there is a watch, which woke it */
		return false;
	taken = (conn->tx.sq_next - watch->seen) & sq->mask;
	may_send = tqp_tx_ready(conn) && !conn->tx.failed && tqp_qp_may_send(conn->qp);
	WRITE_ONCE(watch->seen, conn->tx.sq_next);
	WRITE_ONCE(TCP_QP_SQ_TAKEN(sq->buf), conn->tx.sq_next);
	if (may_send && tqp_watch_waits(conn))
		return false;
	watch->on = may_send && tqp_watch_goes_on(watch, taken);
	if (!watch->on)
		tqp_ring_sleep(sq);
	return may_send && tqp_sq_ready(conn, conn->tx.sq_next);	/* what a bell holds is not ours to send */
}
