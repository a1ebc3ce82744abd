// SPDX-License-Identifier: GPL-2.0
/* The queues of what must sleep, and what brings a work forward. */
#include "object/tqp.h"

struct workqueue_struct *tqp_wq, *tqp_end_wq;

int tqp_work_init(void)
{
	tqp_wq = alloc_workqueue("tcp_qp", WQ_UNBOUND, 0);
	if (!tqp_wq)
		return -ENOMEM;
	tqp_end_wq = alloc_workqueue("tcp_qp_end", WQ_UNBOUND, 0);
	if (!tqp_end_wq) {
		destroy_workqueue(tqp_wq);
		return -ENOMEM;
	}
	return 0;
}

/*
 * Not mod_delayed_work(): of a work that is idle and one that is being cancelled it
 * says the same, and it queues only the first.
 */
u32 tqp_work_now(struct delayed_work *work)
{
	u32 left = 1;

	do {
		left += cancel_delayed_work(work);	/* it was queued, with its reference */
		if (queue_delayed_work(tqp_wq, work, 0))
			return left - 1;
	} while (delayed_work_pending(work));	/* another queued it meanwhile, maybe for later */
	return left;
}

void tqp_work_exit(void)
{
	destroy_workqueue(tqp_end_wq);
	destroy_workqueue(tqp_wq);
}
