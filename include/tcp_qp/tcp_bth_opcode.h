/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * Everything that is known of a tcp_bth opcode, in one table.  Kernel, switch,
 * library, tests and the Wireshark dissector ask it, and nothing else knows
 * which opcodes there are.
 *
 * X(name, value, kind, position, family, pair, extension, operand bytes, text), in order of value
 *   name, value  IBTA RC opcodes, vol. 1 table 35, without the transport bits
 *   kind         TCP_BTH_KIND_*: what becomes of the message's bytes
 *   position     TCP_BTH_POS_*: where the segment stands in its message
 *   family       TCP_BTH_OP_<family>_FIRST and _MIDDLE are its first segments in ver 0;
 *                a message that is one segment is a family of its own
 *   pair         of an ONLY: the LAST that ends the same message in several segments;
 *                of a LAST: that ONLY; of all others: itself
 *   extension    TCP_BTH_EXT_*: what follows the fixed part on each segment of the
 *                message; only the last segment's opcode says it in ver 0
 *   operands     payload bytes of a message of operands, which has no other length
 */
#ifndef TCP_QP_TCP_BTH_OPCODE_H
#define TCP_QP_TCP_BTH_OPCODE_H

#include <linux/types.h>
#ifndef __KERNEL__
#include <stdbool.h>
#endif

/* Messages of operands: their layouts are in tcp_bth_operands.h. */
enum {
	TCP_BTH_READ_REQUEST_BYTES = 28,	/* va, rkey, length of the source; va, key of the sink */
	TCP_BTH_ATOMIC_REQUEST_BYTES = 28,	/* IBTA AtomicETH: va, rkey, swap or add, compare */
	TCP_BTH_ATOMIC_RESPONSE_BYTES = 8,	/* the value before */
	TCP_BTH_TERMINATE_BYTES = 8,		/* start_seq; syndrome, opcode, msn */
	TCP_BTH_OPERANDS_MAX_BYTES = 28,
};

#define TCP_BTH_OPCODES(X) \
	X(SEND_FIRST, 0x00, SEND, FIRST, SEND, SEND_FIRST, NONE, 0, "SEND First") \
	X(SEND_MIDDLE, 0x01, SEND, MIDDLE, SEND, SEND_MIDDLE, NONE, 0, "SEND Middle") \
	X(SEND_LAST, 0x02, SEND, LAST, SEND, SEND_ONLY, NONE, 0, "SEND Last") \
	X(SEND_LAST_IMM, 0x03, SEND, LAST, SEND, SEND_ONLY_IMM, IMM, 0, "SEND Last with Immediate") \
	X(SEND_ONLY, 0x04, SEND, ONLY, SEND, SEND_LAST, NONE, 0, "SEND Only") \
	X(SEND_ONLY_IMM, 0x05, SEND, ONLY, SEND, SEND_LAST_IMM, IMM, 0, \
	  "SEND Only with Immediate") \
	X(WRITE_FIRST, 0x06, WRITE, FIRST, WRITE, WRITE_FIRST, RETH, 0, "RDMA WRITE First") \
	X(WRITE_MIDDLE, 0x07, WRITE, MIDDLE, WRITE, WRITE_MIDDLE, RETH, 0, "RDMA WRITE Middle") \
	X(WRITE_LAST, 0x08, WRITE, LAST, WRITE, WRITE_ONLY, RETH, 0, "RDMA WRITE Last") \
	X(WRITE_LAST_IMM, 0x09, WRITE, LAST, WRITE, WRITE_ONLY_IMM, RETH_IMM, 0, \
	  "RDMA WRITE Last with Immediate") \
	X(WRITE_ONLY, 0x0a, WRITE, ONLY, WRITE, WRITE_LAST, RETH, 0, "RDMA WRITE Only") \
	X(WRITE_ONLY_IMM, 0x0b, WRITE, ONLY, WRITE, WRITE_LAST_IMM, RETH_IMM, 0, \
	  "RDMA WRITE Only with Immediate") \
	X(READ_REQUEST, 0x0c, READ_REQUEST, ONLY, NONE, READ_REQUEST, NONE, \
	  TCP_BTH_READ_REQUEST_BYTES, "RDMA READ Request") \
	X(READ_RESPONSE_FIRST, 0x0d, READ_RESPONSE, FIRST, READ_RESPONSE, READ_RESPONSE_FIRST, \
	  RETH, 0, "RDMA READ Response First") \
	X(READ_RESPONSE_MIDDLE, 0x0e, READ_RESPONSE, MIDDLE, READ_RESPONSE, READ_RESPONSE_MIDDLE, \
	  RETH, 0, "RDMA READ Response Middle") \
	X(READ_RESPONSE_LAST, 0x0f, READ_RESPONSE, LAST, READ_RESPONSE, READ_RESPONSE_ONLY, \
	  RETH, 0, "RDMA READ Response Last") \
	X(READ_RESPONSE_ONLY, 0x10, READ_RESPONSE, ONLY, READ_RESPONSE, READ_RESPONSE_LAST, \
	  RETH, 0, "RDMA READ Response Only") \
	X(ACKNOWLEDGE, 0x11, ACKNOWLEDGE, ONLY, NONE, ACKNOWLEDGE, AETH, 0, "Acknowledge") \
	X(ATOMIC_ACKNOWLEDGE, 0x12, ATOMIC_RESPONSE, ONLY, NONE, ATOMIC_ACKNOWLEDGE, AETH, \
	  TCP_BTH_ATOMIC_RESPONSE_BYTES, "ATOMIC Acknowledge") \
	X(CMP_SWAP, 0x13, ATOMIC_REQUEST, ONLY, NONE, CMP_SWAP, NONE, \
	  TCP_BTH_ATOMIC_REQUEST_BYTES, "CmpSwap") \
	X(FETCH_ADD, 0x14, ATOMIC_REQUEST, ONLY, NONE, FETCH_ADD, NONE, \
	  TCP_BTH_ATOMIC_REQUEST_BYTES, "FetchAdd") \
	/* ours; IBTA reserves it */ \
	X(TERMINATE, 0x15, TERMINATE, ONLY, NONE, TERMINATE, NONE, \
	  TCP_BTH_TERMINATE_BYTES, "Terminate") \
	X(SEND_LAST_INV, 0x16, SEND, LAST, SEND, SEND_ONLY_INV, IETH, 0, \
	  "SEND Last with Invalidate") \
	X(SEND_ONLY_INV, 0x17, SEND, ONLY, SEND, SEND_LAST_INV, IETH, 0, \
	  "SEND Only with Invalidate") \
	/* ours; ver 1: several SEND_ONLY of one length */ \
	X(SEND_TRAIN, 0x18, TRAIN, ONLY, NONE, SEND_TRAIN, TRAIN, 0, "SEND Train") \
	/* ours; ver 1: several WRITE_ONLY of one length */ \
	X(WRITE_TRAIN, 0x19, WRITE_TRAIN, ONLY, NONE, WRITE_TRAIN, RETH_TRAIN, 0, \
	  "RDMA WRITE Train") \
	/* ours: the lengths of the mixed train behind it */ \
	X(LENGTHS, 0x1a, LENGTHS, ONLY, NONE, LENGTHS, NONE, 0, "Lengths") \
	/* ours; ver 1: several SEND_ONLY, as long as the LENGTHS before them say */ \
	X(MIXED_TRAIN, 0x1b, MIXED_TRAIN, ONLY, NONE, MIXED_TRAIN, TRAIN, 0, "SEND Mixed Train") \
	/* ours: the lengths and targets of the mixed train of WRITEs behind it */ \
	X(TARGETS, 0x1c, LENGTHS, ONLY, NONE, TARGETS, NONE, 0, "Targets") \
	/* ours; ver 1: several WRITE_ONLY, as the TARGETS before them say */ \
	X(WRITE_MIXED_TRAIN, 0x1d, WRITE_MIXED_TRAIN, ONLY, NONE, WRITE_MIXED_TRAIN, TRAIN, 0, \
	  "RDMA WRITE Mixed Train")

enum {
#define TCP_BTH_OPCODE_ENUM(name, value, ...) TCP_BTH_OP_##name = value,
	TCP_BTH_OPCODES(TCP_BTH_OPCODE_ENUM)
#undef TCP_BTH_OPCODE_ENUM
	TCP_BTH_OP_COUNT = 0x1e,
	/* a family of no segments but one */
	TCP_BTH_OP_NONE_FIRST = 0xff,
	TCP_BTH_OP_NONE_MIDDLE = 0xff,
};

/* What becomes of a message's bytes. */
enum tcp_bth_kind {
	TCP_BTH_KIND_NONE,		/* no message has this opcode */
	TCP_BTH_KIND_SEND,		/* into the receive of its msn */
	TCP_BTH_KIND_WRITE,		/* where its RETH says */
	TCP_BTH_KIND_READ_RESPONSE,	/* where our READ of its msn wants them */
	TCP_BTH_KIND_READ_REQUEST,	/* operands, from here on */
	TCP_BTH_KIND_ATOMIC_REQUEST,
	TCP_BTH_KIND_ATOMIC_RESPONSE,
	TCP_BTH_KIND_TERMINATE,
	TCP_BTH_KIND_ACKNOWLEDGE,	/* of an end that can't send ACKs at will; its bytes mean nothing */
	TCP_BTH_KIND_TRAIN,		/* several SENDs */
	TCP_BTH_KIND_WRITE_TRAIN,	/* several WRITEs */
	TCP_BTH_KIND_LENGTHS,		/* of the SENDs or WRITEs behind it: into the host's table */
	TCP_BTH_KIND_MIXED_TRAIN,	/* these SENDs */
	TCP_BTH_KIND_WRITE_MIXED_TRAIN,	/* these WRITEs */
};

/* Where a segment stands in its message: bit 0 first, bit 1 last. */
enum { TCP_BTH_POS_MIDDLE = 0, TCP_BTH_POS_FIRST = 1, TCP_BTH_POS_LAST = 2, TCP_BTH_POS_ONLY = 3 };

enum tcp_bth_ext {
	TCP_BTH_EXT_NONE,
	TCP_BTH_EXT_IMM,		/* 4 bytes: immediate */
	TCP_BTH_EXT_IETH,		/* 4 bytes: key to invalidate */
	TCP_BTH_EXT_AETH,		/* 4 bytes: credits */
	TCP_BTH_EXT_TRAIN,		/* 4 bytes: those of all of the train's messages */
	TCP_BTH_EXT_RETH,		/* 16 bytes: va, key, length */
	TCP_BTH_EXT_RETH_IMM,		/* 16 bytes: va, key, immediate */
	TCP_BTH_EXT_RETH_TRAIN,		/* 16 bytes: va of the first, key, messages and step */
};

struct tcp_bth_op_info {
	__u8 kind;		/* enum tcp_bth_kind */
	__u8 position;
	__u8 first, middle, last;	/* of the message in several segments; first is 0xff if it is only one */
	__u8 only;		/* the opcode of the whole message, if this one ends it; else itself */
	__u8 ext;		/* enum tcp_bth_ext */
	__u8 operand_bytes;
};

enum { TCP_BTH_OP_TABLE = 32 };	/* a power of two: no opcode reaches beyond */

/* Indexed by opcode; the rows that no opcode has are zero. */
static const struct tcp_bth_op_info tcp_bth_ops[TCP_BTH_OP_TABLE] __attribute__((unused)) = {
#define TCP_BTH_OPCODE_ROW(name, value, kind_, position_, family, pair, ext_, operands, text) \
	{ \
		.kind = TCP_BTH_KIND_##kind_, \
		.position = TCP_BTH_POS_##position_, \
		.first = TCP_BTH_OP_##family##_FIRST, \
		.middle = TCP_BTH_OP_##family##_MIDDLE, \
		.last = TCP_BTH_POS_##position_ == TCP_BTH_POS_ONLY ? (int)TCP_BTH_OP_##pair : (value), \
		.only = TCP_BTH_POS_##position_ == TCP_BTH_POS_LAST ? (int)TCP_BTH_OP_##pair : (value), \
		.ext = TCP_BTH_EXT_##ext_, \
		.operand_bytes = (operands), \
	},
	TCP_BTH_OPCODES(TCP_BTH_OPCODE_ROW)
#undef TCP_BTH_OPCODE_ROW
};

/* Any byte may be asked for: what is no opcode has kind NONE. */
static inline const struct tcp_bth_op_info *tcp_bth_op(__u8 opcode)
{
	return &tcp_bth_ops[opcode < TCP_BTH_OP_COUNT ? opcode : TCP_BTH_OP_TABLE - 1];
}

static inline int tcp_bth_position(__u8 opcode)
{
	return tcp_bth_op(opcode)->kind ? tcp_bth_op(opcode)->position : (int)TCP_BTH_POS_ONLY;
}

/* The variant of a message's ONLY opcode for a segment at @pos in it. */
static inline __u8 tcp_bth_variant(__u8 only, int pos)
{
	const struct tcp_bth_op_info *op = tcp_bth_op(only);

	if (pos == TCP_BTH_POS_ONLY || !op->kind || op->first == TCP_BTH_OP_NONE_FIRST)
		return only;	/* requests and acknowledges are one segment each */
	return pos == TCP_BTH_POS_LAST ? op->last : pos == TCP_BTH_POS_FIRST ? op->first : op->middle;
}

/* The opposite: the ONLY opcode when @opcode ends a message; itself otherwise. */
static inline __u8 tcp_bth_only(__u8 opcode)
{
	return tcp_bth_op(opcode)->kind ? tcp_bth_op(opcode)->only : opcode;
}

static inline bool tcp_bth_is_send(__u8 opcode)
{
	return tcp_bth_op(opcode)->kind == TCP_BTH_KIND_SEND ||
	       tcp_bth_op(opcode)->kind == TCP_BTH_KIND_TRAIN ||
	       tcp_bth_op(opcode)->kind == TCP_BTH_KIND_MIXED_TRAIN;
}

/* Its messages are told by a table before it. */
static inline bool tcp_bth_is_mixed_train(__u8 opcode)
{
	return tcp_bth_op(opcode)->kind == TCP_BTH_KIND_MIXED_TRAIN ||
	       tcp_bth_op(opcode)->kind == TCP_BTH_KIND_WRITE_MIXED_TRAIN;
}

/* Of any kind. */
static inline bool tcp_bth_is_train(__u8 opcode)
{
	return tcp_bth_op(opcode)->kind == TCP_BTH_KIND_TRAIN ||
	       tcp_bth_op(opcode)->kind == TCP_BTH_KIND_WRITE_TRAIN ||
	       tcp_bth_is_mixed_train(opcode);
}

/* Its messages are of one length, which the option says. */
static inline bool tcp_bth_is_even_train(__u8 opcode)
{
	return tcp_bth_is_train(opcode) && !tcp_bth_is_mixed_train(opcode);
}

static inline bool tcp_bth_is_write(__u8 opcode)
{
	return tcp_bth_op(opcode)->kind == TCP_BTH_KIND_WRITE ||
	       tcp_bth_op(opcode)->kind == TCP_BTH_KIND_WRITE_TRAIN ||
	       tcp_bth_op(opcode)->kind == TCP_BTH_KIND_WRITE_MIXED_TRAIN;
}

/* WRITEs, and the responses that are placed the same way: by their own RETH */
static inline bool tcp_bth_is_tagged(__u8 opcode)
{
	return tcp_bth_is_write(opcode) ||
	       tcp_bth_op(opcode)->kind == TCP_BTH_KIND_READ_RESPONSE;
}

/* Does a segment with this opcode bear an immediate, as an extension or in its RETH? */
static inline bool tcp_bth_has_immediate(__u8 opcode)
{
	return tcp_bth_op(opcode)->ext == TCP_BTH_EXT_IMM ||
	       tcp_bth_op(opcode)->ext == TCP_BTH_EXT_RETH_IMM;
}

/* Does it take a receive of the peer's when it is whole?  @only: ONLY variant */
static inline bool tcp_bth_takes_receive(__u8 only)
{
	return tcp_bth_is_send(only) || tcp_bth_op(only)->ext == TCP_BTH_EXT_RETH_IMM;
}

/* Bytes of extension a whole message of @only (ONLY variant) carries. */
static inline unsigned int tcp_bth_ext_bytes(__u8 only)
{
	switch (tcp_bth_op(only)->ext) {
	case TCP_BTH_EXT_NONE:
		return 0;
	case TCP_BTH_EXT_RETH:
	case TCP_BTH_EXT_RETH_IMM:
	case TCP_BTH_EXT_RETH_TRAIN:
		return 16;
	default:
		return 4;
	}
}

#endif
