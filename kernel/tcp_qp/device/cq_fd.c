// SPDX-License-Identifier: GPL-2.0
/*
 * Completion descriptors: wait for a CQ by its ring, see tcp_qp.h.
 *
 * What waits outlives the CQ, whose descriptors may be anywhere.  A CQ is
 * reached from here under cq_fd->lock alone, which destroy takes to leave; a
 * QP by a reference, which destroy waits for.  Open files pin this module, as
 * do sockets that carry a QP.
 */
#include <linux/anon_inodes.h>
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <net/busy_poll.h>
#include "device/device.h"

enum {
	TQP_CQ_FD_FLAGS = TCP_QP_CQ_DOORBELL | TCP_QP_CQ_WAIT | TCP_QP_CQ_TIMEOUT |
			  TCP_QP_CQ_SIGNAL | TCP_QP_CQ_CLEAR,
	TQP_CQ_FD_SIGNALS = TCP_QP_CQ_SIGNAL | TCP_QP_CQ_CLEAR,
};

/* From here on the timer wheel does: it may be an eighth late, and costs a third of a hrtimer. */
#define TQP_CQ_FD_COARSE_NS NSEC_PER_SEC

/* What who looks at the ring does next; but for the first he is on the wait queue. */
enum tqp_cq_fd_next {
	TQP_CQ_FD_SPINS,
	TQP_CQ_FD_SLEEPS_IF_EMPTY,
	TQP_CQ_FD_SLEEPS,	/* in EPOLLET: he empties the ring, and is not here again in between */
};

/* EPOLL* */
static __poll_t tqp_cq_fd_mask(struct tqp_cq_fd *fd, enum tqp_cq_fd_next next)
{
	__poll_t mask = 0;
	unsigned long flags;
	bool unpolled;

	spin_lock(&fd->lock);
	if (!fd->cq) {
		mask = EPOLLIN | EPOLLRDNORM | EPOLLERR | EPOLLHUP;
	} else {
		spin_lock_irqsave(&fd->cq->lock, flags);	/* against resize */
		unpolled = tqp_cq_unpolled(fd->cq);
		if (next == TQP_CQ_FD_SLEEPS || (next == TQP_CQ_FD_SLEEPS_IF_EMPTY && !unpolled)) {
			tqp_cq_waits(fd->cq);
			unpolled = tqp_cq_unpolled(fd->cq);
		}
		if (fd->signalled || unpolled)
			mask |= EPOLLIN | EPOLLRDNORM;
		if (fd->cq->overflown)
			mask |= EPOLLERR;
		spin_unlock_irqrestore(&fd->cq->lock, flags);
	}
	spin_unlock(&fd->lock);
	return mask;
}

static int tqp_cq_fd_result(__poll_t mask)
{
	if (mask & EPOLLHUP)
		return -EIDRM;
	return mask & EPOLLIN ? 0 : -EOVERFLOW;
}

static void tqp_cq_fd_signal(struct tqp_cq_fd *fd, u32 flags)
{
	spin_lock(&fd->lock);
	fd->signalled = flags & TCP_QP_CQ_SIGNAL;
	spin_unlock(&fd->lock);
	if (flags & TCP_QP_CQ_SIGNAL)
		tqp_cq_fd_wake(fd);
}

/* The number's place in the device's table, which never changes. */
static u32 tqp_cq_fd_index(struct tqp_cq_fd *fd, const struct tqp_device *dev, u32 qpn)
{
	lockdep_assert_held(&fd->lock);
	if (fd->rung_qpn != qpn) {
		fd->rung_index = tqp_qpn_index(dev, qpn);
		fd->rung_qpn = qpn;
	}
	return fd->rung_index;
}

/* With a reference, or an error: nobody rings for a QP on another CQ. */
static struct tqp_qp *tqp_cq_fd_qp(struct tqp_cq_fd *fd, u32 qpn)
{
	struct tqp_qp *qp = ERR_PTR(-EIDRM);
	struct tqp_device *dev;

	spin_lock(&fd->lock);
	if (fd->cq) {
		dev = to_tqp_device(fd->cq->ib.device);
		qp = tqp_qp_at(dev, tqp_cq_fd_index(fd, dev, qpn));
		if (!qp) {
			qp = ERR_PTR(-ENOENT);
		} else if (qp->scq != fd->cq && qp->rcq != fd->cq) {
			tqp_qp_put(qp);
			qp = ERR_PTR(-ENOENT);
		}
	}
	spin_unlock(&fd->lock);
	return qp;
}

static int tqp_cq_fd_doorbell(struct tqp_cq_fd *fd, u32 qpn)
{
	struct tqp_qp *qp = tqp_cq_fd_qp(fd, qpn);
	int ret;

	if (IS_ERR(qp))
		return PTR_ERR(qp);
	ret = tqp_qp_doorbell(qp);
	tqp_qp_put(qp);
	return ret;
}

/* ---- busy polling: as recv() does, for whom SO_BUSY_POLL or net.core.busy_read asks for it ---- */

#ifdef CONFIG_NET_RX_BUSY_POLL
struct tqp_cq_fd_busy {
	struct tqp_cq_fd *fd;
	unsigned long us;		/* 1024 ns, as the core counts */
	__poll_t mask;
};

static bool tqp_cq_fd_busy_end(void *arg, unsigned long start)
{
	struct tqp_cq_fd_busy *busy = arg;

	busy->mask = tqp_cq_fd_mask(busy->fd, TQP_CQ_FD_SPINS);
	return busy->mask || signal_pending(current) ||
	       time_after(busy_loop_current_time(), start + busy->us);
}

/* The NIC writes to the ring itself, and interrupts for what the host has to do. */
static bool tqp_cq_fd_nic_writes(struct tqp_cq_fd *fd)
{
	bool shared = false;

	spin_lock(&fd->lock);
	if (fd->cq)
		shared = READ_ONCE(fd->cq->nic.shared);
	spin_unlock(&fd->lock);
	return shared;
}

static void tqp_cq_fd_spin(struct tqp_cq_fd_busy *busy)
{
	unsigned long start = busy_loop_current_time();

	do {
		cond_resched();
		cpu_relax();
	} while (!tqp_cq_fd_busy_end(busy, start));
}

/* What the last receive's socket asks for; 0: nothing, or there is no such queue. */
static u32 tqp_cq_fd_busy_us(struct tqp_cq_fd *fd, u32 *napi)
{
	u32 us = 0;

	spin_lock(&fd->lock);
	if (fd->cq) {
		us = READ_ONCE(fd->cq->busy_us);
		*napi = READ_ONCE(fd->cq->busy_napi);
	}
	spin_unlock(&fd->lock);
	return us && *napi >= MIN_NAPI_ID ? us : 0;
}

/* A look into that queue would find nothing, or what TCP may hear of later. */
static bool tqp_cq_fd_is_quiet(struct tqp_cq_fd *fd, u32 napi)
{
	struct tqp_offload_device *odev;
	bool quiet = false;

	spin_lock(&fd->lock);
	if (fd->cq && READ_ONCE(fd->cq->nic.shared)) {
		odev = to_tqp_device(fd->cq->ib.device)->offload;
		quiet = odev->ops->is_quiet && odev->ops->is_quiet(odev, napi);
	}
	spin_unlock(&fd->lock);
	return quiet;
}

/*
 * Look into the NIC's queue that the last receive came from: for its socket's time, at most *@ns,
 * which becomes what is left of it; or once, if that is none.
 */
static __poll_t tqp_cq_fd_busy_poll(struct tqp_cq_fd *fd, u64 *ns)
{
	struct tqp_cq_fd_busy busy = { .fd = fd };
	u32 napi = 0, us = tqp_cq_fd_busy_us(fd, &napi);
	u64 began;

	if (!us)
		return 0;
	if (!*ns) {
		if (tqp_cq_fd_is_quiet(fd, napi))
			return 0;
		napi_busy_loop(napi, NULL, NULL, false, BUSY_POLL_BUDGET);
		return tqp_cq_fd_mask(fd, TQP_CQ_FD_SPINS);
	}
	began = ktime_get_ns();
	busy.us = min_t(u64, us, *ns >> 10);
	if (!tqp_cq_fd_busy_end(&busy, busy_loop_current_time())) {
		if (tqp_cq_fd_nic_writes(fd))
			tqp_cq_fd_spin(&busy);
		else
			napi_busy_loop(napi, tqp_cq_fd_busy_end, &busy, false, BUSY_POLL_BUDGET);
	}
	*ns -= min(ktime_get_ns() - began, *ns);
	return busy.mask;
}
#else
static __poll_t tqp_cq_fd_busy_poll(struct tqp_cq_fd *fd, u64 *ns)
{
	return 0;
}
#endif

/*
 * 0 with *@mask set, or as wait_event_interruptible() ends, or -ETIME.  Who calls has mostly seen
 * the ring empty: there is no look at it before the one on the queue.
 */
static int tqp_cq_fd_sleep(struct tqp_cq_fd *fd, bool timed, u64 ns, __poll_t *mask)
{
	const enum tqp_cq_fd_next next = TQP_CQ_FD_SLEEPS_IF_EMPTY;
	long left;

	if (!timed)
		return __wait_event_interruptible(fd->wait, (*mask = tqp_cq_fd_mask(fd, next)));
	if (ns < TQP_CQ_FD_COARSE_NS)
		return wait_event_interruptible_hrtimeout(fd->wait, (*mask = tqp_cq_fd_mask(fd, next)),
							  ns);
	left = min_t(u64, nsecs_to_jiffies64(ns), MAX_SCHEDULE_TIMEOUT - 1);
	left = __wait_event_interruptible_timeout(fd->wait, (*mask = tqp_cq_fd_mask(fd, next)), left);
	return left > 0 ? 0 : left ?: -ETIME;
}

/* A signal ends it, never to be restarted: the time would begin anew. */
static int tqp_cq_fd_wait(struct tqp_cq_fd *fd, const struct tcp_qp_cq_call *call)
{
	bool timed = call->flags & TCP_QP_CQ_TIMEOUT;
	u64 ns = timed ? call->timeout_ns : U64_MAX;
	__poll_t mask = ns ? 0 : tqp_cq_fd_mask(fd, TQP_CQ_FD_SPINS);
	int ret = 0;

	if (!mask)
		mask = tqp_cq_fd_busy_poll(fd, &ns);
	if (!mask)
		ret = ns ? tqp_cq_fd_sleep(fd, timed, ns, &mask) : -ETIME;
	if (ret)
		return ret == -ETIME ? -ETIMEDOUT : -EINTR;
	return tqp_cq_fd_result(mask);
}

static int tqp_cq_fd_check(const struct tcp_qp_cq_call *call)
{
	u32 flags = call->flags;

	if (flags & ~TQP_CQ_FD_FLAGS || (flags & TQP_CQ_FD_SIGNALS) == TQP_CQ_FD_SIGNALS)
		return -EINVAL;
	if (flags & TCP_QP_CQ_TIMEOUT && !(flags & TCP_QP_CQ_WAIT))
		return -EINVAL;
	if ((call->qpn && !(flags & TCP_QP_CQ_DOORBELL)) ||
	    (call->timeout_ns && !(flags & TCP_QP_CQ_TIMEOUT)))
		return -EINVAL;
	return 0;
}

static int tqp_cq_fd_call(struct tqp_cq_fd *fd, const struct tcp_qp_cq_call *call)
{
	int ret = tqp_cq_fd_check(call);

	if (ret)
		return ret;
	if (call->flags & TQP_CQ_FD_SIGNALS)
		tqp_cq_fd_signal(fd, call->flags);
	if (call->flags & TCP_QP_CQ_DOORBELL)
		ret = tqp_cq_fd_doorbell(fd, call->qpn);
	if (!ret && call->flags & TCP_QP_CQ_WAIT)
		ret = tqp_cq_fd_wait(fd, call);
	return ret;
}

static long tqp_cq_fd_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct tcp_qp_cq_call call;

	if (cmd != TCP_QP_IOCTL_CQ)
		return -ENOTTY;
	if (copy_from_user(&call, (void __user *)arg, sizeof(call)))
		return -EFAULT;
	return tqp_cq_fd_call(file->private_data, &call);
}

static __poll_t tqp_cq_fd_poll(struct file *file, poll_table *table)
{
	struct tqp_cq_fd *fd = file->private_data;

	poll_wait(file, &fd->wait, table);
	return tqp_cq_fd_mask(fd, poll_requested_events(table) & EPOLLET ?
				  TQP_CQ_FD_SLEEPS : TQP_CQ_FD_SLEEPS_IF_EMPTY);
}

static int tqp_cq_fd_close(struct inode *inode, struct file *file)
{
	tqp_cq_fd_put(file->private_data);
	return 0;
}

static const struct file_operations tqp_cq_fd_ops = {
	.owner = THIS_MODULE,
	.poll = tqp_cq_fd_poll,
	.release = tqp_cq_fd_close,
	.unlocked_ioctl = tqp_cq_fd_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct tqp_cq_fd *tqp_cq_fd_alloc(struct tqp_cq *cq)
{
	struct tqp_cq_fd *fd = kzalloc(sizeof(*fd), GFP_KERNEL_ACCOUNT);

	if (!fd)
		return NULL;
	kref_init(&fd->ref);
	init_waitqueue_head(&fd->wait);
	spin_lock_init(&fd->lock);
	fd->cq = cq;
	return fd;
}

/* The CQ's, made if this is the first time; with a reference for a file, or NULL: no memory. */
static struct tqp_cq_fd *tqp_cq_fd_get(struct tqp_cq *cq)
{
	struct tqp_cq_fd *fresh = NULL, *fd;

	if (!READ_ONCE(cq->fd)) {
		fresh = tqp_cq_fd_alloc(cq);
		if (!fresh)
			return NULL;
	}
	spin_lock_irq(&cq->lock);
	if (!cq->fd)
		swap(cq->fd, fresh);
	fd = cq->fd;
	kref_get(&fd->ref);
	spin_unlock_irq(&cq->lock);
	kfree(fresh);
	return fd;
}

struct file *tqp_cq_fd_open(struct tqp_cq *cq)
{
	struct tqp_cq_fd *fd = tqp_cq_fd_get(cq);
	struct file *file;

	if (!fd)
		return ERR_PTR(-ENOMEM);
	file = anon_inode_getfile("[tcp_qp_cq]", &tqp_cq_fd_ops, fd, O_RDONLY);
	if (IS_ERR(file))
		tqp_cq_fd_put(fd);
	return file;
}
