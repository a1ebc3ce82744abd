/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Should the ACK of a message's end go at once?
 *
 * A send is done when its end is acknowledged, and TCP delays that ACK in the hope
 * of data that carries it.  Whether such data comes in time is learnt, apart for each
 * kind and length of message, since protocols above answer some and others not: an
 * ACK that left late and alone says no, data that came soon says yes.  Ends that
 * follow each other faster than a round trip are of a sender that does not wait for
 * them: TCP's own ACKs are enough.  So are they for a sender that goes on later, but
 * without an ACK, or so soon after one that it can't have heard of it.  Where ACKs go at
 * once that is not seen, so one in many is left to TCP: a sender that does wait loses
 * milliseconds by it.  A sender that had gone on may only have been held up once: there
 * one of the next is.
 *
 * An answer may leave ahead, and without the ACK: a NIC had completed what it answers, and
 * TCP had not heard of that yet.  Who has few sends waits for both, so that is no answer here.
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
	TQP_QUICKACK_OWED = 4,		/* ends that may share an ACK if the sender goes on without */
	TQP_QUICKACK_TRIES = 16,	/* ACKs at once until one is left to TCP, to see whether the sender goes on; */
	TQP_QUICKACK_TRIES_MAX = 4096,	/* four times as many each time, but */
	TQP_QUICKACK_TRIES_AGAIN = 2,	/* so many the first time, where the sender went on until then */
	TQP_QUICKACK_ANSWERS = 8,	/* in a row: the next end is expected to be answered, too; */
	TQP_QUICKACK_ANSWERS_LOG2_MAX = 4,	/* twice as many after each time that it was not, until */
	TQP_QUICKACK_ANSWERS_MAX = 255,		/* there were so many */
	TQP_QUICKACK_AHEAD_MAX = 5,	/* answers to what TCP hears of later, at once (NUPA_RX_LATER_MAX) */
	TQP_QUICKACK_SLOTS_LOG2 = 4,
	TQP_QUICKACK_SLOTS = 1 << TQP_QUICKACK_SLOTS_LOG2,
};

struct tqp_quickack {
	__u32 end_us;		/* the newest end of a message */
	__u32 left_us;		/* when data left last */
	__u32 acked_us;		/* when an ACK left alone last */
	__u32 gap_us;		/* how long the sender was silent, and then went on without an ACK */
	__u16 tries;		/* ACKs at once since one was left to TCP */
	__u8 more_log2;		/* of how much longer than TQP_QUICKACK_TRIES that takes */
	__u8 slot;		/* the message's */
	__u8 owed;		/* so many ends are not acknowledged yet, TQP_QUICKACK_OWED at most */
	__u8 goes_on;		/* the sender does, without an ACK */
	__u8 trying;		/* what is owed was left to TCP */
	__u8 open;		/* nor is it answered */
	__u8 ahead;		/* data left that should have acknowledged what ends next */
	__u8 answers;		/* ends in a row that were answered, soon behind them or ahead */
	__u8 answers_ahead;	/* data that left, and no end yet that it answers */
	__u8 unanswered;	/* the newest end, so far */
	__u8 answers_log2;	/* of how much longer than TQP_QUICKACK_ANSWERS the row must be */
	__u8 score[TQP_QUICKACK_SLOTS];
};

/* Messages of one slot are expected to be answered alike; kinds that share one by chance are learnt together. */
static inline __u8 tqp_quickack_slot(__u8 kind, __u32 length)
{
	return ((length * 8 + kind) * 0x9e3779b1U) >> (32 - TQP_QUICKACK_SLOTS_LOG2);
}

/* The ACK could go at once: is it left to TCP, to see what the sender does? */
static inline int tqp_quickack_tries(struct tqp_quickack *q)
{
	if (++q->tries < TQP_QUICKACK_TRIES << q->more_log2)
		return 0;
	q->tries = 0;
	if (TQP_QUICKACK_TRIES << q->more_log2 < TQP_QUICKACK_TRIES_MAX)
		q->more_log2 += 2;
	q->trying = 1;
	return 1;
}

static inline void tqp_quickack_count_answer(struct tqp_quickack *q)
{
	if (q->answers < TQP_QUICKACK_ANSWERS_MAX)
		q->answers++;
	else
		q->answers_log2 = 0;
}

static inline void tqp_quickack_end_answers(struct tqp_quickack *q)
{
	q->answers = 0;
	if (q->answers_log2 < TQP_QUICKACK_ANSWERS_LOG2_MAX)
		q->answers_log2++;
}

/* An end is answered by data that left already, or by what leaves next. */
static inline void tqp_quickack_expect_answer(struct tqp_quickack *q)
{
	if (q->answers_ahead) {
		q->answers_ahead--;
		tqp_quickack_count_answer(q);
		return;
	}
	if (q->unanswered)
		q->answers = 0;
	q->unanswered = 1;
}

static inline void tqp_quickack_answer(struct tqp_quickack *q, int soon)
{
	if (!q->unanswered) {
		if (q->answers_ahead < TQP_QUICKACK_AHEAD_MAX)
			q->answers_ahead++;
		return;
	}
	q->unanswered = 0;
	if (soon)
		tqp_quickack_count_answer(q);
	else
		q->answers = 0;
}

/* TCP is about to acknowledge what has ended, or ends now: is data expected that does it, and soon? */
static inline int tqp_quickack_is_carried(const struct tqp_quickack *q)
{
	return q->answers >= TQP_QUICKACK_ANSWERS << q->answers_log2 && !q->score[q->slot];
}

static inline void tqp_quickack_went_on(struct tqp_quickack *q, __u32 after_us)
{
	q->score[q->slot] = 0;
	q->more_log2 = 0;
	q->goes_on = 1;
	if (q->gap_us < after_us)
		q->gap_us = after_us < TQP_QUICKACK_SOON_US ? after_us : TQP_QUICKACK_SOON_US;
}

/* An ACK leaves @age_us after a message, alone.  Nonzero: somebody may have waited for it. */
static inline int tqp_quickack_is_late(struct tqp_quickack *q, __u32 age_us)
{
	if (age_us < TQP_QUICKACK_LATE_US)
		return 0;
	if (age_us >= 2 * q->gap_us)
		return 1;
	q->gap_us -= q->gap_us / 4;	/* more may be on its way, as before */
	return 0;
}

/*
 * Data leaves to a sender of few, and does not acknowledge what a NIC has completed: that was
 * sent without the ACK of what ended before, if this is still owed.
 */
static inline void tqp_quickack_goes_ahead(struct tqp_quickack *q, __u32 now_us)
{
	if (q->open && q->owed)
		tqp_quickack_went_on(q, now_us - q->end_us);
	q->ahead = 1;
}

/*
 * A message of @slot has ended; @owed: its ACK has not left.  Nonzero: it should go now.  What
 * left just before is an answer to it: a NIC that completes may be ahead of TCP.
 */
static inline int tqp_quickack_end(struct tqp_quickack *q, __u8 slot, __u32 now_us,
				   __u32 min_rtt_us, int owed)
{
	int apart = now_us - q->end_us >= min_rtt_us;
	int answered = !q->ahead && now_us - q->left_us < min_rtt_us / 2;
	int at_once;

	/* half of it: what was measured may have been long */
	if (apart && q->open && (q->owed || now_us - q->acked_us < min_rtt_us / 2))
		tqp_quickack_went_on(q, now_us - q->end_us);
	tqp_quickack_expect_answer(q);
	q->end_us = now_us;
	q->slot = slot;
	q->owed = !owed ? 0 : q->owed < TQP_QUICKACK_OWED ? q->owed + 1 : TQP_QUICKACK_OWED;
	q->open = !answered;
	if (answered && q->score[slot])
		--q->score[slot];
	at_once = owed && apart && !answered && q->score[slot] >= TQP_QUICKACK_FROM && !tqp_quickack_tries(q);
	if (q->ahead && at_once)
		q->open = 0;	/* what leaves next answers another one */
	q->ahead = 0;
	return at_once;
}

/* TCP is about to acknowledge short segments because they were read: may that wait for more of them? */
static inline int tqp_quickack_may_wait(const struct tqp_quickack *q)
{
	return q->goes_on && q->owed < TQP_QUICKACK_OWED - 1;
}

/* A segment leaves, and acknowledges what came.  Nonzero: late and alone, and not because it was left to TCP. */
static inline int tqp_quickack_left(struct tqp_quickack *q, __u32 now_us, int has_data)
{
	__u8 *score = &q->score[q->slot];
	int late = 0, trying = q->trying;

	q->trying = 0;
	if (has_data) {
		int soon = now_us - q->end_us < TQP_QUICKACK_SOON_US;

		tqp_quickack_answer(q, soon);
		if (q->open && *score && soon)
			--*score;
		q->open = 0;
		q->left_us = now_us;
	} else if (q->owed) {
		late = tqp_quickack_is_late(q, now_us - q->end_us);
		if (late) {
			*score = *score + TQP_QUICKACK_STEP > TQP_QUICKACK_MAX ?
					 TQP_QUICKACK_MAX : *score + TQP_QUICKACK_STEP;
			if (q->goes_on)
				q->tries = TQP_QUICKACK_TRIES - TQP_QUICKACK_TRIES_AGAIN;
			q->goes_on = 0;
			tqp_quickack_end_answers(q);
		}
		q->acked_us = now_us;
	}
	q->owed = 0;
	return late && !trying;
}

#endif
