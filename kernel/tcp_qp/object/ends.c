// SPDX-License-Identifier: GPL-2.0
/*
 * Who waits for what when objects end.
 *
 * Nothing is freed before its last user lets go: pages stay pinned, a conn and a
 * region stay in memory until TCP, the drivers and RCU's readers have dropped
 * them, and the module stays until the last conn is gone.  So nobody has to wait
 * for safety's sake.  Waiting guarantees that what a program writes to its memory
 * after destroy_qp, dereg_mr or a flushed completion leaves under no old message's
 * name.  Drivers may keep a packet for as long as somebody's qdisc likes.
 *
 *   A program that lives on waits, until killed, and in all of its context at most
 *   TQP_DRIVER_MS: what one object waited, the next does not wait again.
 *
 *   What a NIC has completed TCP may not have heard of yet.  The peer should: its send
 *   has arrived.  So before a conn ends, whoever ends it waits for TCP, which takes as
 *   long as an interrupt, and if the packet was lost on the way TQP_SETTLE_MS at most.
 *
 *   A process that exits waits for nothing else.  Nobody writes to private memory any
 *   more, and it is not given to others while it is pinned.  Shared memory and
 *   dma-bufs live on with whoever shares them, and those may write while a packet
 *   still waits: they could all the time, for they share the buffers of somebody
 *   who sends from them whenever it likes.  The connection is reset, so what is so
 *   sent belongs to no message that anybody was told has arrived.
 *
 *   When the device goes, all of its QPs together wait TQP_LEAVE_MS, and its regions,
 *   which nothing but QPs sends from, not at all.
 */
#include <linux/ratelimit.h>
#include <linux/sched/signal.h>
#include "object/tqp.h"

enum {
	TQP_SETTLE_MS = 300,		/* longer than a packet takes from the NIC to TCP, also the second time */
	TQP_END_SLICE_MS = 50,		/* a removal that begins meanwhile is seen after so long */
	TQP_EXPEDITED_PER_S = 200,	/* grace periods that interrupt every CPU */
};

/* All the devices': every CPU hears of it, whoever asks. */
static DEFINE_RATELIMIT_STATE(tqp_expedited, HZ, TQP_EXPEDITED_PER_S);

void tqp_end_init(void)
{
	ratelimit_set_flags(&tqp_expedited, RATELIMIT_MSG_ON_RELEASE);	/* and never released: silent */
}

static bool tqp_exits(void)
{
	return current->flags & PF_EXITING || fatal_signal_pending(current);
}

bool tqp_end_must_wait(const struct tqp_device *dev)
{
	/* kernel threads close files that their owners lost, all of them on one */
	return !tqp_exits() && !(current->flags & PF_KTHREAD) && !READ_ONCE(dev->leaving);
}

/* Begins with the first wait, and anew when that is long over.  *@at: of a context, for waits of one kind. */
static unsigned long tqp_context_end(unsigned long *at)
{
	unsigned long by = READ_ONCE(*at), wait = msecs_to_jiffies(TQP_DRIVER_MS);

	if (by && time_before(jiffies, by + wait))
		return by;
	by = (jiffies + wait) ?: 1;
	WRITE_ONCE(*at, by);
	return by;
}

/* Jiffies that may still be waited; 0: none. */
static long tqp_end_time_left(const struct tqp_device *dev, unsigned long *at)
{
	unsigned long by;

	if (smp_load_acquire(&dev->leaving))	/* pairs with tqp_client_remove() */
		by = READ_ONCE(dev->leave_by);
	else if (tqp_end_must_wait(dev))
		by = tqp_context_end(at);
	else
		return 0;
	return tqp_exits() ? 0 : max((long)(by - jiffies), 0L);
}

static bool tqp_end_wait_by(const struct tqp_device *dev, unsigned long *at, wait_queue_head_t *wait,
			    bool (*over)(void *of), void *of, u32 ms)
{
	const long slice = msecs_to_jiffies(TQP_END_SLICE_MS);
	unsigned long by = jiffies + msecs_to_jiffies(ms);
	long left;

	if (over(of))
		return true;
	while (time_before(jiffies, by)) {
		left = min3(tqp_end_time_left(dev, at), (long)(by - jiffies), slice);
		if (left <= 0)
			break;
		if (wait_event_killable_timeout(*wait, over(of), left) > 0) {
			WRITE_ONCE(*at, 0);	/* whoever it was waited for does let go */
			return true;
		}
	}
	return over(of);
}

bool tqp_end_wait(const struct tqp_device *dev, struct tqp_ucontext *uctx, wait_queue_head_t *wait,
		  bool (*over)(void *of), void *of, u32 ms)
{
	return tqp_end_wait_by(dev, &uctx->wait_by, wait, over, of, ms);
}

/* What TCP drops is no driver that keeps memory, and the other way round. */
void tqp_end_settle(const struct tqp_device *dev, struct tqp_ucontext *uctx,
		    wait_queue_head_t *wait, bool (*over)(void *of), void *of)
{
	long left;

	if (tqp_end_must_wait(dev)) {
		tqp_end_wait_by(dev, &uctx->settle_wait_by, wait, over, of, TQP_SETTLE_MS);
		return;
	}
	if (READ_ONCE(dev->leaving) || over(of))
		return;
	if (!READ_ONCE(uctx->settle_by))
		WRITE_ONCE(uctx->settle_by, (jiffies + msecs_to_jiffies(TQP_SETTLE_MS)) ?: 1);
	left = READ_ONCE(uctx->settle_by) - jiffies;
	if (left > 0)
		wait_event_timeout(*wait, over(of), left);
}

void tqp_end_grace_period(void)
{
	if (__ratelimit(&tqp_expedited))
		synchronize_rcu_expedited();
	else
		synchronize_rcu();
}

bool tqp_end_is_forgotten(const struct tqp_device *dev, int err)
{
	if (!err || err == -ENOENT)
		return true;
	dev_warn_ratelimited(dev->offload->dma_dev, "memory is lost: the NIC may still write it\n");
	return false;
}

void tqp_end_readers(const struct tqp_device *dev)
{
	if (tqp_end_must_wait(dev))
		tqp_end_grace_period();
}
