// SPDX-License-Identifier: GPL-2.0
/*
 * A conn's memory.  Ten thousand idle QPs should cost little: what only some
 * need (READs, responses, a longer log) comes with the first use.
 */
#include <linux/slab.h>
#include "conn/conn.h"

static struct kmem_cache *tqp_conn_cache;
static work_func_t tqp_conn_free_work;
static atomic_t tqp_conns_live = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(tqp_conns_gone);

static void tqp_conn_free_tx(struct tqp_conn *conn)
{
	kvfree(conn->tx.log.rec);
	kvfree(conn->tx.mrs);
	kvfree(conn->tx.msgs);
	kfree(conn->sges);
	kfree(conn->tx.train.bytes);
	kfree(conn->tx.pages);
	kfree(conn->tx.copies);
	kfree(conn->tx.watch);
	kfree(conn->rx.train.mixed.entries);
}

void tqp_conn_free(struct tqp_conn *conn)
{
	tqp_conn_free_tx(conn);
	kfree(conn->requester.reads);
	kfree(conn->responder.responses);
	kmem_cache_free(tqp_conn_cache, conn);
	if (atomic_dec_and_test(&tqp_conns_live))
		wake_up_all(&tqp_conns_gone);
}

static void tqp_conn_release(struct kref *ref)
{
	struct tqp_conn *conn = container_of(ref, struct tqp_conn, ref);

	/* the hook may still be looking at it under RCU; freeing may sleep */
	INIT_RCU_WORK(&conn->end.free_work, tqp_conn_free_work);
	queue_rcu_work(tqp_wq, &conn->end.free_work);
}

struct tqp_conn *tqp_conn_get(struct tqp_conn *conn)
{
	kref_get(&conn->ref);
	return conn;
}

bool tqp_conn_tryget(struct tqp_conn *conn)
{
	return kref_get_unless_zero(&conn->ref);
}

void tqp_conn_put(struct tqp_conn *conn)
{
	kref_put(&conn->ref, tqp_conn_release);
}

void tqp_queue_delayed(struct tqp_conn *conn, struct delayed_work *work, u32 ms)
{
	tqp_conn_get(conn);
	if (!queue_delayed_work(tqp_wq, work, msecs_to_jiffies(ms)))
		tqp_conn_put(conn);
}

void tqp_queue_now(struct tqp_conn *conn, struct delayed_work *work)
{
	for (u32 left = tqp_work_now(work); left; left--)
		tqp_conn_put(conn);
}

/* The largest WQE of either queue, as it is copied. */
static int tqp_conn_alloc_sges(struct tqp_conn *conn, const struct tqp_qp *qp)
{
	u32 tx = qp->cap.max_send_sge, rx = qp->srq ? qp->srq->max_sge : qp->cap.max_recv_sge;

	conn->sges = kzalloc((tx + rx) * sizeof(*conn->sges) + qp->cap.max_inline_data,
			     GFP_KERNEL_ACCOUNT);
	if (!conn->sges)
		return -ENOMEM;
	conn->tx.wqe.sges = conn->sges;
	conn->rx.wqe.sges = conn->sges + tx;
	conn->tx.wqe.data = (u8 *)(conn->sges + tx + rx);
	return 0;
}

/* In one piece: the records, and behind them whose each is. */
static struct tqp_msg_rec *tqp_log_alloc(u32 records, struct tqp_tx_msg ***msg)
{
	struct tqp_msg_rec *rec = kvcalloc(records, sizeof(*rec) + sizeof(**msg),
					   GFP_KERNEL_ACCOUNT | __GFP_NOWARN);

	*msg = (struct tqp_tx_msg **)(rec + records);
	return rec;
}

static void tqp_log_grow(struct tqp_conn *conn)
{
	u32 had = conn->tx.log.mask + 1, records = roundup_pow_of_two(conn->tx.sq_mask + 1 + TQP_LOG_EXTRA);
	struct tqp_msg_rec *rec, *old_rec = conn->tx.log.rec;
	struct tqp_tx_msg **msg;

	if (had >= records)
		return;
	rec = tqp_log_alloc(records, &msg);
	if (!rec)	/* as it was: acknowledgements make room, too */
		return;
	for (u32 i = conn->tx.log.head; i != conn->tx.log.tail; i++)
		msg[i & (records - 1)] = conn->tx.log_msg[i & (had - 1)];
	tqp_msglog_move(&conn->tx.log, rec, records);
	conn->tx.log_msg = msg;
	kvfree(old_rec);
}

bool tqp_log_room(struct tqp_conn *conn)
{
	sock_owned_by_me(conn->sk);
	if (tqp_msglog_full(&conn->tx.log))
		tqp_log_grow(conn);
	return !tqp_msglog_full(&conn->tx.log);
}

static int tqp_conn_alloc_tx(struct tqp_conn *conn, struct tqp_qp *qp)
{
	u32 entries = qp->sq->mask + 1, sges = max_t(u32, qp->cap.max_send_sge, 1);
	struct tqp_msg_rec *rec;

	if (WARN_ON_ONCE(sges > TQP_SGE_MAX) || tqp_conn_alloc_sges(conn, qp))
		return -ENOMEM;
	conn->tx.msgs = kvcalloc(entries, sizeof(*conn->tx.msgs), GFP_KERNEL_ACCOUNT);
	conn->tx.mrs = kvcalloc(array_size(entries, sges), sizeof(*conn->tx.mrs),
				GFP_KERNEL_ACCOUNT);
	rec = tqp_log_alloc(entries, &conn->tx.log_msg);
	conn->tx.log.rec = rec;
	if (!conn->tx.msgs || !conn->tx.mrs || !rec)
		return -ENOMEM;
	for (u32 i = 0; i < entries; i++)
		conn->tx.msgs[i].mrs = &conn->tx.mrs[i * sges];
	tqp_msglog_init(&conn->tx.log, rec, entries);
	conn->tx.sq_next = qp->sq->index;
	conn->tx.sq_mask = qp->sq->mask;
	return 0;
}

struct tqp_conn *tqp_conn_alloc(struct tqp_qp *qp)
{
	struct tqp_conn *conn = kmem_cache_zalloc(tqp_conn_cache, GFP_KERNEL);

	if (!conn)
		return NULL;
	if (tqp_conn_alloc_tx(conn, qp)) {
		tqp_conn_free_tx(conn);
		kmem_cache_free(tqp_conn_cache, conn);
		return NULL;
	}
	kref_init(&conn->ref);
	conn->dev = qp->dev;
	conn->qp = qp;
	conn->state = TQP_CONN_HANDSHAKE;
	init_waitqueue_head(&conn->wait);
	spin_lock_init(&conn->tx.done_lock);
	mutex_init(&conn->offload.mutex);
	mutex_init(&conn->socket.plain_mutex);
	conn->handshake.delay_ms = TQP_RTR_FIRST_MS;
	conn->rx.stall_ms = TQP_STALL_FIRST_MS;
	conn->rx.watch_ms = TQP_STALL_FIRST_MS;
	conn->credit.probe_delay_ms = TQP_PROBE_FIRST_MS;
	atomic_inc(&tqp_conns_live);
	return conn;
}

void tqp_conn_notify(struct tqp_conn *conn)
{
	wake_up_all(&conn->wait);
	if (conn->owner)
		conn->owner->ops->wake(conn->owner);
}

int tqp_conn_cache_init(work_func_t free)
{
	tqp_conn_free_work = free;
	tqp_conn_cache = KMEM_CACHE(tqp_conn, SLAB_ACCOUNT);
	return tqp_conn_cache ? 0 : -ENOMEM;
}

void tqp_conn_wait_gone(void)
{
	wait_event(tqp_conns_gone, atomic_read(&tqp_conns_live) == 0);
}

void tqp_conn_cache_exit(void)
{
	kmem_cache_destroy(tqp_conn_cache);
}
