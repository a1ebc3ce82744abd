/* SPDX-License-Identifier: GPL-2.0 */
/* A conn's handshake: what both ends know of each other before the first message. */
#ifndef TQP_CONN_HANDSHAKE_H
#define TQP_CONN_HANDSHAKE_H

#include <linux/workqueue.h>

enum {
	TQP_RTR_FIRST_MS = 20,
	TQP_RTR_LAST_MS = 1000,
};

/*
 * Locks: none for the bools, which the receive hook sets in softirq; the sk lock
 * for the rest.
 */
struct tqp_handshake {
	bool rtr_enabled;		/* our side can receive; set under the sk lock */
	bool rtr_seen;			/* peer's rtr */
	bool rtr_acked;			/* peer saw ours */
	bool rtr_owed;			/* peer repeats its rtr: acknowledge it */
	bool peer_stock;		/* SENDs only, ver 1 beside TCP's own timestamps */
	bool peer_trains;		/* it takes them, */
	bool peer_write_trains;		/* also of WRITEs, */
	bool peer_mixed_trains;		/* of SENDs of any lengths, */
	bool peer_write_mixed_trains;	/* and of WRITEs of any lengths and targets */
	bool peer_room;			/* it has room for sends that are acknowledged late */
	u32 delay_ms;
	unsigned long deadline;		/* jiffies; 0: attach itself waits */
	struct delayed_work work;
};

#endif
