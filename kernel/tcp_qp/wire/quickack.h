/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Should the ACK of a message's end go at once?
 *
 * A send is done when its end is acknowledged, and TCP delays that ACK in the hope
 * of data that carries it.  Whether such data comes is learnt: an ACK that left late
 * and alone says no, data says yes.  Ends that follow each other faster than a round
 * trip are of a sender that does not wait for them: TCP's own ACKs are enough.
 *
 * Pure, like msglog.h; times in microseconds.  The owner serialises all calls.
 */
#ifndef TQP_QUICKACK_H
#define TQP_QUICKACK_H

#include <linux/types.h>

enum {
	TQP_QUICKACK_LATE_US = 1000,	/* an ACK that is later waited for data */
	TQP_QUICKACK_STEP = 8,		/* for each of these, less one for each answer: a wrong guess costs a packet, */
	TQP_QUICKACK_FROM = 2,		/* a late ACK milliseconds; from here on at once */
	TQP_QUICKACK_MAX = 32,
};

struct tqp_quickack {
	__u64 end_us;		/* the newest end of a message */
	__u8 score;
	__u8 owed;		/* it is not acknowledged yet */
	__u8 open;		/* nor is it answered */
};

/* A message has ended, and TCP owes an ACK.  Nonzero: it should go now. */
static inline int tqp_quickack_end(struct tqp_quickack *q, __u64 now_us, __u32 min_rtt_us)
{
	int apart = now_us - q->end_us >= min_rtt_us;

	q->end_us = now_us;
	q->owed = 1;
	q->open = 1;
	return apart && q->score >= TQP_QUICKACK_FROM;
}

/* A segment leaves, and acknowledges what came. */
static inline void tqp_quickack_left(struct tqp_quickack *q, __u64 now_us, int has_data)
{
	if (has_data) {
		if (q->open && q->score)
			q->score--;
		q->open = 0;
	} else if (q->owed && now_us - q->end_us >= TQP_QUICKACK_LATE_US) {
		q->score += TQP_QUICKACK_STEP;
		if (q->score > TQP_QUICKACK_MAX)
			q->score = TQP_QUICKACK_MAX;
	}
	q->owed = 0;
}

#endif
