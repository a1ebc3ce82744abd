/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The calls of tqp_offload.h in right and wrong orders, against whatever provider
 * there is: this module takes tcp_qp's place on the auxiliary bus.  What it finds
 * is in the kernel log: "offload_contract: NETDEV: ok CASE" or "... not ok CASE, WHY".
 */
#ifndef OFFLOAD_CONTRACT_H
#define OFFLOAD_CONTRACT_H

#include <tqp_offload.h>

/* Host memory that the provider reads, as tcp_qp would give it. */
struct contract {
	struct tqp_offload_device *odev;
	void *shadow, *ring, *buffer;	/* a page each */
	dma_addr_t shadow_dma, ring_dma, buffer_dma;
};

/* How many cases of @c->odev failed. */
u32 contract_run(struct contract *c);

#endif
