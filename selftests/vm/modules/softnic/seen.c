// SPDX-License-Identifier: GPL-2.0
/* The in-order mark of a flow, and the ranges beyond it. */
#include "softnic.h"

/* The mark moved: ranges that it reached are part of what lies before it. */
static void snic_seen_absorb(struct snic_seen *seen)
{
	u32 i = 0;

	while (i < seen->count) {
		if (after(seen->block[i].begin, seen->mark)) {
			i++;
			continue;
		}
		if (after(seen->block[i].end, seen->mark))
			seen->mark = seen->block[i].end;
		seen->block[i] = seen->block[--seen->count];
		i = 0;
	}
	if (seen->resyncing && !before(seen->mark, seen->resync))
		seen->resyncing = false;
}

bool snic_seen_overlaps(const struct snic_seen *seen, u32 seq, u32 end)
{
	u32 i;

	if (before(seq, seen->mark))
		return true;
	for (i = 0; i < seen->count; i++)
		if (before(seq, seen->block[i].end) && before(seen->block[i].begin, end))
			return true;
	return false;
}

void snic_seen_raise(struct snic_seen *seen, u32 seq)
{
	if (after(seq, seen->mark)) {
		seen->mark = seq;
		snic_seen_absorb(seen);
	}
}

void snic_seen_distrust(struct snic_seen *seen, u32 seq)
{
	if (!after(seq, seen->mark) || (seen->resyncing && !after(seq, seen->resync)))
		return;
	seen->resyncing = true;
	seen->resync = seq;
}

/* Take out the ranges that [*begin, *end) touches, and make it their union. */
static void snic_seen_join(struct snic_seen *seen, u32 *begin, u32 *end)
{
	u32 i = 0;

	while (i < seen->count) {
		if (after(seen->block[i].begin, *end) || before(seen->block[i].end, *begin)) {
			i++;
			continue;
		}
		if (before(seen->block[i].begin, *begin))
			*begin = seen->block[i].begin;
		if (after(seen->block[i].end, *end))
			*end = seen->block[i].end;
		seen->block[i] = seen->block[--seen->count];
		i = 0;
	}
}

void snic_seen_record(struct snic_seen *seen, u32 seq, u32 end)
{
	u32 i;

	if (seen->resyncing && after(end, seen->resync))
		seen->resync = end;
	if (!after(seq, seen->mark)) {
		snic_seen_raise(seen, end);
		return;
	}
	snic_seen_join(seen, &seq, &end);
	if (seen->count < SNIC_BLOCKS) {
		seen->block[seen->count].begin = seq;
		seen->block[seen->count++].end = end;
		return;
	}
	/* This one is forgotten, so nothing is placed until the mark has passed all there is. */
	snic_seen_distrust(seen, end);
	for (i = 0; i < seen->count; i++)
		snic_seen_distrust(seen, seen->block[i].end);
}
