/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Should the ACK of a message's end go at once?
 *
 * A send is done when its end is acknowledged, and TCP delays that ACK in the hope
 * of data that carries it.  Whether such data comes in time is learnt, apart for each
 * kind and length of message, since protocols above answer some and others not: an
 * ACK that left late and alone says no, data that came soon says yes.  Ends that
 * follow each other faster than a round trip are of a sender that does not wait for
 * them: TCP's own ACKs are enough.
 *
 * Pure, like msglog.h; times in microseconds, modulo an hour.  The owner serialises all calls.
 */
#ifndef TQP_QUICKACK_H
#define TQP_QUICKACK_H

#include <linux/types.h>

enum {
	TQP_QUICKACK_LATE_US = 1000,	/* an ACK that is later waited for data */
	TQP_QUICKACK_SOON_US = 4000,	/* TCP waits no longer for data (TQP_DELACK_MAX_MS) */
	TQP_QUICKACK_STEP = 8,		/* for each late ACK, less one for each answer: a wrong guess costs a packet, */
	TQP_QUICKACK_FROM = 2,		/* a late ACK milliseconds; from here on at once */
	TQP_QUICKACK_MAX = 32,
	TQP_QUICKACK_SLOTS_LOG2 = 4,
	TQP_QUICKACK_SLOTS = 1 << TQP_QUICKACK_SLOTS_LOG2,
};

struct tqp_quickack {
	__u32 end_us;		/* the newest end of a message */
	__u32 left_us;		/* when data left last */
	__u8 slot;		/* the message's */
	__u8 owed;		/* it is not acknowledged yet */
	__u8 open;		/* nor is it answered */
	__u8 score[TQP_QUICKACK_SLOTS];
};

/* Messages of one slot are expected to be answered alike; kinds that share one by chance are learnt together. */
static inline __u8 tqp_quickack_slot(__u8 kind, __u32 length)
{
	return ((length * 8 + kind) * 0x9e3779b1U) >> (32 - TQP_QUICKACK_SLOTS_LOG2);
}

/*
 * A message of @slot has ended, and TCP owes an ACK.  Nonzero: it should go now.  What left
 * just before is an answer to it: a NIC that completes may be ahead of TCP.
 */
static inline int tqp_quickack_end(struct tqp_quickack *q, __u8 slot, __u32 now_us, __u32 min_rtt_us)
{
	int apart = now_us - q->end_us >= min_rtt_us;
	int answered = now_us - q->left_us < min_rtt_us / 2;

	q->end_us = now_us;
	q->slot = slot;
	q->owed = 1;
	q->open = !answered;
	if (answered && q->score[slot])
		--q->score[slot];
	return apart && !answered && q->score[slot] >= TQP_QUICKACK_FROM;
}

/* A segment leaves, and acknowledges what came.  Nonzero: late and alone. */
static inline int tqp_quickack_left(struct tqp_quickack *q, __u32 now_us, int has_data)
{
	__u8 *score = &q->score[q->slot];
	int late = 0;

	if (has_data) {
		if (q->open && *score && now_us - q->end_us < TQP_QUICKACK_SOON_US)
			--*score;
		q->open = 0;
		q->left_us = now_us;
	} else if (q->owed && now_us - q->end_us >= TQP_QUICKACK_LATE_US) {
		late = 1;
		*score = *score + TQP_QUICKACK_STEP > TQP_QUICKACK_MAX ? TQP_QUICKACK_MAX :
									 *score + TQP_QUICKACK_STEP;
	}
	q->owed = 0;
	return late;
}

#endif
