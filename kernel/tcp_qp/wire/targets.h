/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The targets of a mixed train of WRITEs while it is gathered: no two lie one over
 * the other, so that a copy of some, which were sent again, covers nothing of what
 * was placed of another.  Pure, like msglog.h.
 */
#ifndef TQP_TARGETS_H
#define TQP_TARGETS_H

#include <tcp_qp/tcp_bth_mixed.h>

struct tqp_targets {
	__u8 *table;		/* as it will be sent: [TCP_BTH_TARGETS_MAX_BYTES] */
	__u32 messages;
	__u8 rising[TCP_BTH_TARGETS_MAX_MESSAGES];	/* their numbers, by address */
};

void tqp_targets_begin(struct tqp_targets *targets, __u8 *table, __u32 rkey);

/* @length (not zero) bytes at @va are the next one's.  False: they can't be, and nothing has changed. */
bool tqp_targets_add(struct tqp_targets *targets, __u32 length, __u64 va);

/* It is of no train after all. */
void tqp_targets_undo(struct tqp_targets *targets);

#endif
