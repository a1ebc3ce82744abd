// SPDX-License-Identifier: GPL-2.0
#include "wire/msglog.h"

void tqp_msglog_init(struct tqp_msglog *log, struct tqp_msg_rec *rec, __u32 entries)
{
	log->rec = rec;
	log->mask = entries - 1;
	log->head = 0;
	log->tail = 0;
	log->hint = 0;
}

void tqp_msglog_move(struct tqp_msglog *log, struct tqp_msg_rec *rec, __u32 entries)
{
	for (__u32 i = log->head; i != log->tail; i++)
		rec[i & (entries - 1)] = log->rec[i & log->mask];
	log->rec = rec;
	log->mask = entries - 1;
}

static bool tqp_msglog_try(struct tqp_msglog *log, __u32 at, __u32 seq)
{
	if (at - log->head >= log->tail - log->head ||
	    !tqp_msg_owns(&log->rec[at & log->mask], seq))
		return false;
	log->hint = at;
	return true;
}

const struct tqp_msg_rec *tqp_msglog_find(struct tqp_msglog *log, __u32 seq)
{
	__u32 low = 0, high = log->tail - log->head;

	/* new data runs forward: the same message again, or the next one */
	if (tqp_msglog_try(log, log->hint, seq) || tqp_msglog_try(log, log->hint + 1, seq))
		return &log->rec[log->hint & log->mask];

	while (low < high) {
		__u32 mid = low + (high - low) / 2;
		const struct tqp_msg_rec *rec = &log->rec[(log->head + mid) & log->mask];

		if ((__s32)(seq - rec->start_seq) < 0)
			high = mid;
		else
			low = mid + 1;
	}
	if (low && tqp_msglog_try(log, log->head + low - 1, seq))
		return &log->rec[log->hint & log->mask];
	return NULL;
}

/* The record that owns @seq, if it is of @first's mixed train; or NULL. */
static const struct tqp_msg_rec *tqp_msglog_mixed(struct tqp_msglog *log,
						  const struct tqp_msg_rec *first, __u32 seq)
{
	const struct tqp_msg_rec *last = tqp_msglog_find(log, seq);

	return last && last->mixed && last->mixed_start == first->mixed_start ? last : NULL;
}

const struct tqp_msg_rec *tqp_msglog_last(struct tqp_msglog *log, const struct tqp_msg_rec *first,
					  __u32 seq, __u32 bytes)
{
	__u32 at = ((__u32)(first - log->rec) - log->head) & log->mask;
	__u32 from = seq - first->start_seq, places;
	const struct tqp_msg_rec *last;

	if (from + bytes <= tqp_msg_stream_bytes(first->length))
		return first;
	if (first->mixed)
		return tqp_msglog_mixed(log, first, seq + bytes - 1);
	if (!first->length)
		return NULL;
	/* all between them are of the train, too: places count without a gap */
	places = (from + bytes - 1) / first->length;
	if (places >= log->tail - log->head - at)
		return NULL;
	last = &log->rec[(log->head + at + places) & log->mask];
	return last->train_place == first->train_place + places &&
	       tqp_msg_owns(last, seq + bytes - 1) ? last : NULL;
}

/* The @count-th of the records is acknowledged, and so are all before it? */
static bool tqp_msglog_acked(const struct tqp_msglog *log, __u32 count, __u32 una)
{
	const struct tqp_msg_rec *rec = &log->rec[(log->head + count - 1) & log->mask];

	return (__s32)(una - (rec->start_seq + tqp_msg_stream_bytes(rec->length))) >= 0;
}

/* In ever longer steps, then back by halves: mostly it is one, or a train's hundreds. */
__u32 tqp_msglog_ack(struct tqp_msglog *log, __u32 una)
{
	__u32 all = log->tail - log->head, acked = 0, step = 1;

	while (acked + step <= all && tqp_msglog_acked(log, acked + step, una)) {
		acked += step;
		step *= 2;
	}
	for (; step; step /= 2)
		if (acked + step <= all && tqp_msglog_acked(log, acked + step, una))
			acked += step;
	log->head += acked;
	return acked;
}
