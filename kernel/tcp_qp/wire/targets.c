// SPDX-License-Identifier: GPL-2.0
#include "wire/targets.h"

static const __u8 *tqp_target_at(const struct tqp_targets *targets, __u32 rank)
{
	return targets->table + tcp_bth_targets_bytes(targets->rising[rank]);
}

static __u64 tqp_target_va(const struct tqp_targets *targets, __u32 rank)
{
	const __u8 *target = tqp_target_at(targets, rank);

	return (__u64)tcp_bth_get32(target + 4) << 32 | tcp_bth_get32(target + 8);
}

static __u32 tqp_target_length(const struct tqp_targets *targets, __u32 rank)
{
	return tcp_bth_get32(tqp_target_at(targets, rank));
}

/* How many begin before @va?  Mostly all do. */
static __u32 tqp_targets_before(const struct tqp_targets *targets, __u64 va)
{
	__u32 low = 0, high = targets->messages;

	if (high && tqp_target_va(targets, high - 1) < va)
		return high;
	while (low < high) {
		__u32 mid = low + (high - low) / 2;

		if (tqp_target_va(targets, mid) < va)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void tqp_targets_begin(struct tqp_targets *targets, __u8 *table, __u32 rkey)
{
	targets->table = table;
	targets->messages = 0;
	tcp_bth_put32(table, rkey);
}

bool tqp_targets_add(struct tqp_targets *targets, __u32 length, __u64 va)
{
	__u32 rank = tqp_targets_before(targets, va);
	__u8 *to = targets->rising + rank;

	if (targets->messages == TCP_BTH_TARGETS_MAX_MESSAGES || length & ~TCP_BTH_LENGTHS_LENGTH_MASK ||
	    va + length < va)
		return false;
	if (rank && va - tqp_target_va(targets, rank - 1) < tqp_target_length(targets, rank - 1))
		return false;
	if (rank < targets->messages && tqp_target_va(targets, rank) - va < length)
		return false;
	memmove(to + 1, to, targets->messages - rank);
	*to = (__u8)targets->messages;
	tcp_bth_targets_put(targets->table, targets->messages++, length, va);
	return true;
}

void tqp_targets_undo(struct tqp_targets *targets)
{
	__u32 rank = 0;

	targets->messages--;
	while (targets->rising[rank] != targets->messages)
		rank++;
	memmove(targets->rising + rank, targets->rising + rank + 1, targets->messages - rank);
}
