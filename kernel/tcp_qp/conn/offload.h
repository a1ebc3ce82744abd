/* SPDX-License-Identifier: GPL-2.0 */
/* A conn's context in a NIC, and the memory that the NIC reads of it. */
#ifndef TQP_CONN_OFFLOAD_H
#define TQP_CONN_OFFLOAD_H

#include <linux/mutex.h>
#include <linux/types.h>

struct tqp_offload_shadow;
struct tqp_offload_reads;

/*
 * Locks: the mutex, and of shadow and reads beside it the sk lock: the data path
 * has that one alone.
 */
struct tqp_conn_offload {
	struct mutex mutex;
	bool active;			/* the NIC has a context */
	bool no_mixed;			/* and would deliver mixed trains */
	struct tqp_offload_shadow *shadow;
	struct tqp_offload_reads *reads;	/* from the first READ on */
	dma_addr_t shadow_dma, reads_dma;
	dma_addr_t *rq_dma;
	u32 nr_rq_dma;
};

#endif
