// SPDX-License-Identifier: GPL-2.0
/*
 * WRITEs land in their order.  What is delivered the host copies later, so a
 * WRITE after it waits until the host is that far.  And what was placed, is not
 * copied once more over a later WRITE.
 */
#include "softnic.h"

/* Before each segment, so that no mark grows old. */
void snic_order_settle(struct snic_order *order, const struct snic_qp *qp)
{
	if (order->copying && snic_consumed(qp, order->copy_end))
		order->copying = false;
	if (order->written && snic_consumed(qp, order->latest))
		order->written = false;
}

/* A SEND's bytes, too: that holds up some WRITEs without need, and no wrong one lands. */
void snic_order_delivered(struct snic_order *order, u32 end)
{
	if (!order->copying || after(end, order->copy_end))
		order->copy_end = end;
	order->copying = true;
}

void snic_order_written(struct snic_order *order, u32 start)
{
	if (!order->written || after(start, order->latest))
		order->latest = start;
	order->written = true;
}

bool snic_order_allows(const struct snic_order *order)
{
	return !order->copying;
}

bool snic_order_overtaken(const struct snic_order *order, u32 end)
{
	return order->written && !after(end, order->latest);
}
