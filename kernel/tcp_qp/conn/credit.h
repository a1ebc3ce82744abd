/* SPDX-License-Identifier: GPL-2.0 */
/* Credits of a conn: how many receives each end has posted.  They are hints. */
#ifndef TQP_CONN_CREDIT_H
#define TQP_CONN_CREDIT_H

#include <linux/workqueue.h>

enum {
	TQP_PROBE_FIRST_MS = 200,		/* one message without credit */
	TQP_PROBE_LAST_MS = 2000,
};

/*
 * Locks: the sk lock, but the receive hook writes peer_limit and known in softirq
 * without any.
 */
struct tqp_credit {
	u16 peer_limit;			/* first msn the peer has no receive for */
	bool known;			/* the peer has said one */
	u16 advertised;			/* last msn limit sent */
	bool probe_allowed;
	u32 probe_delay_ms;
	struct delayed_work probe_work;
};

#endif
