/* SPDX-License-Identifier: GPL-2.0 */
/* A conn's context in a NIC, and the memory that the NIC reads of it. */
#ifndef TQP_CONN_OFFLOAD_H
#define TQP_CONN_OFFLOAD_H

#include <linux/mutex.h>
#include <linux/types.h>

struct tqp_offload_shadow;
struct tqp_offload_reads;

enum tqp_turn_state {
	TQP_TURN_NONE,			/* the NIC can't complete */
	TQP_TURN_OURS,
	TQP_TURN_NICS,
	TQP_TURN_LEFT,			/* ours, but there are bytes of what it has completed */
};

/*
 * Whose turn it is to complete receives (struct tqp_offload_shadow), and how much of
 * what the NIC has completed we know: of receives info.rx_messages.  Lock: the sk lock.
 */
struct tqp_turn {
	u32 writes, solicited;		/* as in the shadow */
	u8 state;			/* enum tqp_turn_state */
	bool over;			/* it is not given any more: the conn ends */
	bool untold;			/* there were receives among what we know */
	bool untold_solicited;
};

/* Sends that the NIC may complete, too (struct tqp_offload_sends): offload/sends.c. */
struct tqp_nic_sends {
	__le32 completed;		/* as the NIC has left it, without a shadow */
	u32 posted;			/* so many; sk lock */
	u32 heard;			/* so many of them are not under way any more for TCP; as msgs[].done */
	bool on;			/* it may; sk lock */
};

/*
 * Locks: the mutex, under which nobody waits for the sk lock, which a process may keep;
 * of shadow, reads and sends the sk lock.
 */
struct tqp_conn_offload {
	struct mutex mutex;
	bool active;			/* the NIC has a context */
	bool lost;			/* and may write for ever to what it was told of */
	bool no_mixed;			/* and would deliver mixed trains */
	struct tqp_turn turn;
	struct tqp_nic_sends sends;
	struct tqp_offload_shadow *shadow;
	struct tqp_offload_reads *reads;	/* from the first READ on */
	dma_addr_t shadow_dma, reads_dma;
	dma_addr_t *rq_dma;
	struct tqp_ring *rq;		/* that it is of */
	u32 nr_rq_dma;
};

#endif
