// SPDX-License-Identifier: GPL-2.0
/* The queues of what must sleep. */
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

void tqp_work_exit(void)
{
	destroy_workqueue(tqp_end_wq);
	destroy_workqueue(tqp_wq);
}
