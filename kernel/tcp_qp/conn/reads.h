/* SPDX-License-Identifier: GPL-2.0 */
/* READs and atomics: those that a conn asks for, and those that its peer asks for. */
#ifndef TQP_CONN_READS_H
#define TQP_CONN_READS_H

#include "conn/tx.h"

enum {
	TQP_READS_DEFAULT = 16,			/* unless modify_qp says max_rd_atomic */
	TQP_RESPONSES_MAX = TQP_OFFLOAD_READS_MAX,	/* further requests wait in TCP */
	TQP_LOG_EXTRA = 2 * TQP_RESPONSES_MAX,	/* records beside one for each SQ entry, once needed */
};

/* A READ or atomic of ours that waits for its response, at its msn. */
struct tqp_read {
	struct tqp_tx_msg *msg;		/* NULL: none waits */
	u64 va;
	u32 key;
	u32 length;
	bool atomic;
};

/* Lock: the sk lock. */
struct tqp_requester {
	struct tqp_read *reads;		/* [TQP_OFFLOAD_READS_MAX], from the first one on */
	u16 out;			/* that wait */
};

struct tqp_binding;

/* A request of the peer's and its response. */
struct tqp_response {
	struct tqp_tx_msg msg;
	struct tqp_mr *mr;		/* that it reads: pinned by msg */
	struct tqp_binding *binding;	/* of the window that it reads through: a reference; or NULL */
	struct ib_sge source;
	u64 sink_va;
	u32 sink_key;
	u32 length;
	u16 msn;
	u8 opcode;
	bool busy;			/* from the request until TCP is done with the response */
	u8 value[TCP_BTH_ATOMIC_RESPONSE_BYTES];
};

/* Lock: the sk lock; responses[].busy ends, and rx_waits is then looked at, in any context. */
struct tqp_responder {
	struct tqp_response *responses;	/* [TQP_RESPONSES_MAX], from the first one on */
	u32 head;			/* next to send */
	u32 tail;			/* next to use */
	bool rx_waits;			/* a request, for a free one */
};

#endif
