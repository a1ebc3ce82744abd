/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * Payload of the small messages that ask, answer or end: all words big endian.
 */
#ifndef TCP_QP_TCP_BTH_OPERANDS_H
#define TCP_QP_TCP_BTH_OPERANDS_H

#include <tcp_qp/tcp_bth.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tcp_bth_read_request {
	__u64 va;		/* at the responder */
	__u32 rkey;
	__u32 length;		/* bytes */
	__u64 sink_va;		/* at the requester: what the responses' RETH says */
	__u32 sink_key;
};

struct tcp_bth_atomic_request {
	__u64 va;		/* multiple of 8 */
	__u32 rkey;
	__u64 swap_add;
	__u64 compare;		/* CMP_SWAP */
};

/* IBTA AETH syndromes of a NAK */
enum tcp_bth_syndrome {
	TCP_BTH_NAK_INVALID_REQUEST = 0x61,
	TCP_BTH_NAK_REMOTE_ACCESS = 0x62,
	TCP_BTH_NAK_REMOTE_OPERATIONAL = 0x63,
};

/* The last message of a stream: why its sender stopped at which of the receiver's messages. */
struct tcp_bth_terminate {
	__u32 start_seq;	/* of the message that failed */
	__u8 syndrome;		/* enum tcp_bth_syndrome */
	__u8 opcode;
	__u16 msn;
};

static inline __u64 tcp_bth_get64(const __u8 *p)
{
	return (__u64)tcp_bth_get32(p) << 32 | tcp_bth_get32(p + 4);
}

static inline void tcp_bth_put64(__u8 *p, __u64 v)
{
	tcp_bth_put32(p, (__u32)(v >> 32));
	tcp_bth_put32(p + 4, (__u32)(v & 0xffffffff));
}

static inline void tcp_bth_put_read_request(__u8 *p, const struct tcp_bth_read_request *r)
{
	tcp_bth_put64(p, r->va);
	tcp_bth_put32(p + 8, r->rkey);
	tcp_bth_put32(p + 12, r->length);
	tcp_bth_put64(p + 16, r->sink_va);
	tcp_bth_put32(p + 24, r->sink_key);
}

static inline void tcp_bth_get_read_request(const __u8 *p, struct tcp_bth_read_request *r)
{
	r->va = tcp_bth_get64(p);
	r->rkey = tcp_bth_get32(p + 8);
	r->length = tcp_bth_get32(p + 12);
	r->sink_va = tcp_bth_get64(p + 16);
	r->sink_key = tcp_bth_get32(p + 24);
}

static inline void tcp_bth_put_atomic_request(__u8 *p, const struct tcp_bth_atomic_request *r)
{
	tcp_bth_put64(p, r->va);
	tcp_bth_put32(p + 8, r->rkey);
	tcp_bth_put64(p + 12, r->swap_add);
	tcp_bth_put64(p + 20, r->compare);
}

static inline void tcp_bth_get_atomic_request(const __u8 *p, struct tcp_bth_atomic_request *r)
{
	r->va = tcp_bth_get64(p);
	r->rkey = tcp_bth_get32(p + 8);
	r->swap_add = tcp_bth_get64(p + 12);
	r->compare = tcp_bth_get64(p + 20);
}

static inline void tcp_bth_put_terminate(__u8 *p, const struct tcp_bth_terminate *t)
{
	tcp_bth_put32(p, t->start_seq);
	p[4] = t->syndrome;
	p[5] = t->opcode;
	tcp_bth_put16(p + 6, t->msn);
}

static inline void tcp_bth_get_terminate(const __u8 *p, struct tcp_bth_terminate *t)
{
	t->start_seq = tcp_bth_get32(p);
	t->syndrome = p[4];
	t->opcode = p[5];
	t->msn = tcp_bth_get16(p + 6);
}

#ifdef __cplusplus
}
#endif
#endif
