/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Credits as 16-bit numbers of messages: the first one that has no receive.
 *
 * Which of two limits is newer is told by their distance, so both must be closer than half the
 * numbers.  A limit that was heard may be behind what is sent by then: messages go without credit
 * from time to time.  Hence a limit is never as far ahead as a ring can have receives.
 *
 * Pure, like msglog.h.
 */
#ifndef TQP_CREDIT_H
#define TQP_CREDIT_H

#include <linux/types.h>

enum {
	TQP_CREDIT_MAX = 1 << 14,	/* receives that a peer is told of at once */
};

/* What the peer is told: @next is the next message's number, @posted are the receives there are. */
static inline __u16 tqp_credit_limit_of(__u16 next, __u32 posted)
{
	return next + (posted < TQP_CREDIT_MAX ? posted : TQP_CREDIT_MAX);
}

/* How far @limit is ahead of message or limit @number; negative or 0: it is not. */
static inline __s16 tqp_credit_ahead(__u16 limit, __u16 number)
{
	return (__s16)(limit - number);
}

#endif
