// SPDX-License-Identifier: GPL-2.0
/* Device counters: `rdma statistic show link tcpqp0/1`, sysfs ports/1/hw_counters. */
#include "object/tqp.h"

#define TQP_STAT_DESC(counter) { .name = #counter },	/* in the order of enum tqp_counter */
static const struct rdma_stat_desc tqp_stat_descs[] = { TQP_COUNTERS(TQP_STAT_DESC) };
#undef TQP_STAT_DESC
static_assert(ARRAY_SIZE(tqp_stat_descs) == TQP_C_COUNT);

struct rdma_hw_stats *tqp_stats_alloc(struct ib_device *ib, u32 port)
{
	/* No lifespan: a reading is cheap, and a test wants the present. */
	return rdma_alloc_hw_stats_struct(tqp_stat_descs, TQP_C_COUNT, 0);
}

static u64 tqp_stat_sum(const struct tqp_device *dev, enum tqp_counter c)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(dev->counters, cpu)->v[c]);
	return sum;
}

int tqp_stats_get(struct ib_device *ib, struct rdma_hw_stats *stats, u32 port, int index)
{
	const struct tqp_device *dev = to_tqp_device(ib);
	int i;

	if (!port)
		return -EOPNOTSUPP;
	for (i = 0; i < TQP_C_COUNT; i++)
		stats->value[i] = tqp_stat_sum(dev, i);
	/*
	 * Told that all were read, the core reads none again until the jiffy is over; told of one,
	 * it does.  Of the first one it must be told that all were: rdma(8) asks for them by that.
	 */
	return index ?: TQP_C_COUNT;
}
