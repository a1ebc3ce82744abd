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

int tqp_stats_get(struct ib_device *ib, struct rdma_hw_stats *stats, u32 port, int index)
{
	const struct tqp_device *dev = to_tqp_device(ib);
	int i;

	if (!port)
		return -EOPNOTSUPP;
	for (i = 0; i < TQP_C_COUNT; i++)
		stats->value[i] = atomic64_read(&dev->counters[i]);
	return TQP_C_COUNT;
}
