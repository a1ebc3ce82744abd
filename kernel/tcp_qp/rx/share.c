// SPDX-License-Identifier: GPL-2.0
/*
 * How much of a processor's time softirq may spend on receiving for queue pairs.
 *
 * No scheduler weighs what runs in softirq: a peer that writes without end would
 * have the processor nearly for itself.  Within each window softirq has a share;
 * what comes after that is received by tx_work, a task among the others, and
 * TCP's window makes the peer wait for it.  Datagrams of UD QPs share the share.
 */
#include <linux/moduleparam.h>
#include <linux/sched/clock.h>
#include "rx/rx.h"
#include "tx/tx.h"

enum {
	TQP_SHARE_WINDOW_NS = 8 * NSEC_PER_MSEC,
	TQP_SHARE_PERCENT = 50,
};

struct tqp_share {
	u64 began;			/* local_clock(), when the window did */
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

bool tqp_share_enter(u64 *began)
{
	*began = 0;
	if (!in_serving_softirq())
		return true;
	*began = local_clock();
	return !tqp_share_is_used_up(this_cpu_ptr(&tqp_shares), *began);
}

void tqp_share_leave(u64 began)
{
	if (began)
		this_cpu_ptr(&tqp_shares)->used += local_clock() - began;
}

void tqp_rx_ready(struct tqp_conn *conn)
{
	u64 began;

	if (!tqp_share_enter(&began)) {
		tqp_rx_yield(conn);
		return;
	}
	tqp_rx_run(conn);
	tqp_share_leave(began);
}
