// SPDX-License-Identifier: GPL-2.0
/*
 * Bells: an eventfd lets a send queue's work requests go, see tcp_qp.h.
 *
 * An eventfd is signalled anywhere: in a device's interrupt, under a stranger's
 * write().  That counts the ring and queues the work, which takes the socket
 * lock, moves the gate and sends in turns, as any doorbell does.  Nothing of a
 * process is touched there: the ring's WQEs and the regions' pages are the
 * kernel's already.
 *
 * Lives.  A bell is its conn's, from tqp_bell_set() until the next one or detach,
 * under qp->mutex, and only then its work is queued.  It holds the eventfd's context,
 * not its file; when the last descriptor is closed it is deaf, and stays where it is.
 * Its end takes it off the wait queue, so that nobody calls it, disables the work,
 * which waits for it, and takes back what it has deferred.
 *
 * Budget.  Rings in vain cost no more than TQP_BELL_VAIN_MAX works in a row, then
 * one a jiffy: whoever holds the eventfd can't keep a processor busy on behalf of
 * nobody.  Rings that are put off so are not lost, for they add up.
 *
 * Locks: the eventfd's wait queue is innermost, but for the workqueue's own.
 */
#include <linux/eventfd.h>
#include <linux/file.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include "control/control.h"
#include "tx/tx.h"

enum {
	TQP_BELL_VAIN_MAX = 64,
	TQP_BELL_PAUSE_JIFFIES = 1,
};

struct tqp_bell {
	struct tqp_conn *conn;		/* whose bell it is: it outlives us */
	struct eventfd_ctx *ctx;
	wait_queue_head_t *head;	/* of ctx; NULL: we are not on it */
	wait_queue_entry_t wait;
	poll_table poll;
	u32 count;			/* WQEs for a ring */
	atomic_t rung;			/* rings that the work has not seen */
	bool deaf;			/* under the wait queue's lock */
	u32 vain;			/* in a row; of the work */
	u32 pause;			/* jiffies until the next work */
	struct delayed_work work;
};

/* The wait queue's lock, any context. */
static int tqp_bell_wake(wait_queue_entry_t *wait, unsigned int mode, int sync, void *key)
{
	struct tqp_bell *bell = container_of(wait, struct tqp_bell, wait);
	struct tqp_conn *conn = bell->conn;
	__poll_t flags = key_to_poll(key);

	if (flags & EPOLLHUP)
		bell->deaf = true;
	if (!(flags & EPOLLIN) || bell->deaf || READ_ONCE(conn->state) == TQP_CONN_DEAD)
		return 0;
	atomic_inc(&bell->rung);
	smp_mb__after_atomic();	/* whoever queues the work for others sees this, or we see that he did */
	if (READ_ONCE(conn->bell) == &bell->work && !(READ_ONCE(conn->deferred) & TQP_DEFERRED_BELL))
		queue_delayed_work(tqp_wq, &bell->work, READ_ONCE(bell->pause));
	return 0;
}

/*
 * What an eventfd's poll calls.  Who has it for a bell already is counted: all are
 * called with interrupts off.
 */
static void tqp_bell_queue(struct file *file, wait_queue_head_t *head, poll_table *poll)
{
	struct tqp_bell *bell = container_of(poll, struct tqp_bell, poll);
	wait_queue_entry_t *other;
	u32 others = 0;

	spin_lock_irq(&head->lock);
	list_for_each_entry(other, &head->head, entry)
		others += other->func == tqp_bell_wake;
	if (others < TCP_QP_BELL_QPS_MAX) {
		__add_wait_queue(head, &bell->wait);
		bell->head = head;
	}
	spin_unlock_irq(&head->lock);
}

/* @wqes more, as far as the queue has slots; sk lock. */
static void tqp_gate_move(struct tqp_conn *conn, u64 wqes)
{
	u32 mask = conn->tx.sq_mask;
	u32 open = (conn->tx.gate - conn->tx.sq_next) & mask;

	conn->tx.gate = (conn->tx.sq_next + (u32)min_t(u64, open + wqes, mask)) & mask;
}

/* Did it bring anything?  sk lock. */
static bool tqp_bell_rang(struct tqp_bell *bell)
{
	u32 rings = atomic_xchg(&bell->rung, 0);
	struct tqp_conn *conn = bell->conn;
	u32 from = conn->tx.sq_next;

	if (!conn->qp || conn->state == TQP_CONN_DEAD)
		return false;
	tqp_count(conn->dev, TQP_C_tx_bell_rings, rings);
	tqp_gate_move(conn, (u64)rings * bell->count);
	tqp_conn_look(conn);
	return conn->tx.sq_next != from;
}

static void tqp_bell_work(struct work_struct *work)
{
	struct tqp_bell *bell = container_of(to_delayed_work(work), struct tqp_bell, work);
	struct tqp_conn *conn = bell->conn;

	if (!atomic_read(&bell->rung) || !tqp_lock_or_defer(conn, TQP_DEFERRED_BELL))
		return;
	bell->vain = tqp_bell_rang(bell) ? 0 : bell->vain + 1;
	release_sock(conn->sk);
	if (bell->vain >= TQP_BELL_VAIN_MAX)
		tqp_count(conn->dev, TQP_C_tx_bell_pauses, 1);
	WRITE_ONCE(bell->pause, bell->vain < TQP_BELL_VAIN_MAX ? 0 : TQP_BELL_PAUSE_JIFFIES);
}

static void tqp_bell_free(struct tqp_bell *bell)
{
	struct tqp_conn *conn = bell->conn;

	if (bell->head)
		remove_wait_queue(bell->head, &bell->wait);
	disable_delayed_work_sync(&bell->work);
	if (conn->bell == &bell->work) {
		tqp_deferred_forget(conn, TQP_DEFERRED_BELL);
		WRITE_ONCE(conn->bell, NULL);
	}
	if (bell->ctx)
		eventfd_ctx_put(bell->ctx);
	kfree(bell);
}

static int tqp_bell_listen(struct tqp_bell *bell, int fd)
{
	struct file *file = fget(fd);
	struct eventfd_ctx *ctx;

	if (!file)
		return -EBADF;
	ctx = eventfd_ctx_fileget(file);
	if (!IS_ERR(ctx)) {
		bell->ctx = ctx;
		vfs_poll(file, &bell->poll);
	}
	fput(file);
	if (IS_ERR(ctx))
		return PTR_ERR(ctx);
	return bell->head ? 0 : -ENOSPC;
}

static struct tqp_bell *tqp_bell_alloc(struct tqp_conn *conn, u32 count)
{
	struct tqp_bell *bell = kzalloc(sizeof(*bell), GFP_KERNEL_ACCOUNT);

	if (!bell)
		return NULL;
	bell->conn = conn;
	bell->count = count;
	init_waitqueue_func_entry(&bell->wait, tqp_bell_wake);
	init_poll_funcptr(&bell->poll, tqp_bell_queue);
	INIT_DELAYED_WORK(&bell->work, tqp_bell_work);
	return bell;
}

/* What is posted by now is not held. */
static void tqp_gate_close(struct tqp_conn *conn)
{
	lock_sock(conn->sk);
	if (!conn->tx.gated && conn->qp) {
		conn->tx.gate = tqp_ring_user_prod(conn->qp->sq);
		conn->tx.gated = true;
	}
	release_sock(conn->sk);
}

/* From here on the work is queued; it may have been rung by now. */
static void tqp_bell_hang(struct tqp_bell *bell)
{
	WRITE_ONCE(bell->conn->bell, &bell->work);
	smp_mb();	/* pairs with tqp_bell_wake() */
	queue_delayed_work(tqp_wq, &bell->work, 0);
}

void tqp_bell_end(struct tqp_conn *conn, bool open)
{
	if (conn->bell)
		tqp_bell_free(container_of(conn->bell, struct tqp_bell, work));
	if (!open)
		return;
	lock_sock(conn->sk);
	conn->tx.gated = false;
	tqp_conn_look(conn);
	release_sock(conn->sk);
}

int tqp_bell_set(struct tqp_qp *qp, const struct tcp_qp_bell *req)
{
	struct tqp_conn *conn = qp->conn;
	struct tqp_bell *bell;
	int ret;

	lockdep_assert_held(&qp->mutex);
	if (qp->ud)
		return -EOPNOTSUPP;
	if (req->eventfd < -1 || (req->eventfd == -1 ? req->count : !req->count))
		return -EINVAL;
	if (!conn || READ_ONCE(conn->state) == TQP_CONN_DEAD)
		return -ENOTCONN;
	if (req->count > conn->tx.sq_mask)
		return -EINVAL;
	if (req->eventfd == -1) {
		tqp_bell_end(conn, true);
		return 0;
	}
	bell = tqp_bell_alloc(conn, req->count);
	if (!bell)
		return -ENOMEM;
	tqp_gate_close(conn);	/* before the first ring */
	ret = tqp_bell_listen(bell, req->eventfd);
	if (ret) {
		tqp_bell_free(bell);
		if (!conn->bell)
			tqp_bell_end(conn, true);
		return ret;
	}
	tqp_bell_end(conn, false);
	tqp_bell_hang(bell);
	return 0;
}
