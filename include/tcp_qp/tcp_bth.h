/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * tcp_bth: the TCP option that names, on every data segment, the queue pair
 * message the payload belongs to and where in that message it lands.
 *
 * Wire only, plus the one parser and the one builder that the kernel modules,
 * the switch, the library and the tests share.  Pure: no socket, no clock.
 *
 *   {u8 kind = 253, u8 len, be16 exid = 0x5150} then one of two layouts.
 *
 * ver 0, one description per segment (20 bytes + extension):
 *    flags opcode msn | mbo:24 segno:8 | icrc | tsval | tsecr | extension
 * ver 1, the same bytes on every segment of a message (12 bytes + optional):
 *    flags opcode msn | start_seq | length | [tsval | tsecr] | extension
 *
 * extension: none, 4 bytes (imm, ieth or aeth) or 16 bytes (RETH).  It is
 * present on every segment of its message, so that the header length is the
 * same in a burst; the message's final opcode says what 4 bytes mean.
 *
 * A message of length zero takes one byte of the stream, which belongs to no
 * one; it is always sent as ver 1, since ver 0 cannot tell it from one byte.
 *
 * RETH: the last word is the DMA length, which is the message's; only an
 * opcode *_WITH_IMM has the immediate there.  In ver 0 these are the last
 * segment's opcodes alone, in ver 1, which says the length itself, the whole
 * message's: so a receiver knows from any segment how far a WRITE reaches.
 *
 * SEND_TRAIN (ver 1): SENDs of one length (not zero), one behind the other, so
 * that small ones share segments.  msn, start_seq and length are the first
 * one's, the 4 bytes of extension are the bytes of all of them; number i has
 * msn + i and begins at start_seq + i * length.  Like any option of ver 1 it may
 * be copied to all segments of a burst; a part of a train may be described anew,
 * as a shorter train or as a SEND.  Only to peers whose AETH says that they take
 * them.
 *
 * Requests (READ_REQUEST, CMP_SWAP, FETCH_ADD), ATOMIC_ACKNOWLEDGE and
 * TERMINATE carry operands as the payload of a message of their own; layouts
 * are below.  A response bears its request's msn.
 *
 * An ACKNOWLEDGE rides on pure ACKs.  An end whose TCP is stock can't send those
 * at will: it sends ACKNOWLEDGE as messages, with AETH and rtr, whose bytes mean
 * nothing; msn counts them.  It may do so before it has seen rtr.  Such an end
 * takes SENDs only, reads ver 1, and needs the timestamps in TCP's own option.
 *
 * Sources: RFC 4727 and RFC 6994 (experimental options), RFC 7323 (timestamps),
 * IBTA vol. 1 chapter 9 (opcodes, RETH, AETH, ICRC).
 */
#ifndef TCP_QP_TCP_BTH_H
#define TCP_QP_TCP_BTH_H

#ifdef __KERNEL__
#include <linux/types.h>
#include <linux/string.h>
#include <linux/build_bug.h>
#include <linux/unaligned.h>
#else
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#endif

#ifdef __cplusplus
extern "C" {
#define TCP_QP_STATIC_ASSERT(c, m) static_assert(c, m)
#else
#define TCP_QP_STATIC_ASSERT(c, m) _Static_assert(c, m)
#endif

enum {
	TCP_BTH_KIND = 253,
	TCP_BTH_EXID = 0x5150,

	TCP_BTH_HEAD_BYTES = 4,		/* kind, len, exid */
	TCP_BTH_V0_BYTES = 20,
	TCP_BTH_V1_BYTES = 12,
	TCP_BTH_TS_BYTES = 8,
	TCP_BTH_EXT4_BYTES = 4,
	TCP_BTH_RETH_BYTES = 16,
	TCP_BTH_OPT_MIN_BYTES = TCP_BTH_HEAD_BYTES + TCP_BTH_V1_BYTES,
	TCP_BTH_OPT_MAX_BYTES = 40,	/* all that a TCP header can carry */

	TCP_BTH_V0_MESSAGE_MAX_BYTES = 1 << 24,
	TCP_BTH_TRAIN_MAX_MESSAGES = 1 << 14,
	TCP_BTH_MSS_MULTIPLE_BYTES = 128,
};

/* flags: bits 0-1 are the version */
enum {
	TCP_BTH_F_VER_MASK = 0x03,
	TCP_BTH_F_TIMESTAMP = 0x04,
	TCP_BTH_F_MORE = 0x08,		/* more_segments: another message follows in this burst; of a stock end's ACKNOWLEDGE: once there is credit */
	TCP_BTH_F_RTR = 0x10,		/* my QP is ready to receive */
	TCP_BTH_F_RTR_ACK = 0x20,	/* I saw yours */
	TCP_BTH_F_ICRC = 0x40,
	TCP_BTH_F_SOLICITED = 0x80,	/* IBTA's SE bit: wake a consumer that waits for solicited completions */
};

/* IBTA RC opcodes, vol. 1 table 35, without the transport bits */
enum {
	TCP_BTH_OP_SEND_FIRST = 0x00,
	TCP_BTH_OP_SEND_MIDDLE = 0x01,
	TCP_BTH_OP_SEND_LAST = 0x02,
	TCP_BTH_OP_SEND_LAST_IMM = 0x03,
	TCP_BTH_OP_SEND_ONLY = 0x04,
	TCP_BTH_OP_SEND_ONLY_IMM = 0x05,
	TCP_BTH_OP_WRITE_FIRST = 0x06,
	TCP_BTH_OP_WRITE_MIDDLE = 0x07,
	TCP_BTH_OP_WRITE_LAST = 0x08,
	TCP_BTH_OP_WRITE_LAST_IMM = 0x09,
	TCP_BTH_OP_WRITE_ONLY = 0x0a,
	TCP_BTH_OP_WRITE_ONLY_IMM = 0x0b,
	TCP_BTH_OP_READ_REQUEST = 0x0c,
	TCP_BTH_OP_READ_RESPONSE_FIRST = 0x0d,
	TCP_BTH_OP_READ_RESPONSE_MIDDLE = 0x0e,
	TCP_BTH_OP_READ_RESPONSE_LAST = 0x0f,
	TCP_BTH_OP_READ_RESPONSE_ONLY = 0x10,
	TCP_BTH_OP_ACKNOWLEDGE = 0x11,
	TCP_BTH_OP_ATOMIC_ACKNOWLEDGE = 0x12,
	TCP_BTH_OP_CMP_SWAP = 0x13,
	TCP_BTH_OP_FETCH_ADD = 0x14,
	TCP_BTH_OP_TERMINATE = 0x15,	/* ours; IBTA reserves it */
	TCP_BTH_OP_SEND_LAST_INV = 0x16,
	TCP_BTH_OP_SEND_ONLY_INV = 0x17,
	TCP_BTH_OP_SEND_TRAIN = 0x18,	/* ours; ver 1: several SEND_ONLY of one length */
	TCP_BTH_OP_COUNT = 0x19,
};

struct tcp_bth_head {
	__u8 kind;
	__u8 len;
	__be16 exid;
	__u8 flags;
	__u8 opcode;
	__be16 msn;
};

struct tcp_bth_v0 {
	struct tcp_bth_head head;
	__be32 mbo_seg;		/* offset of this segment in its message << 8 | number in its burst */
	__be32 icrc;
	__be32 tsval;
	__be32 tsecr;
};

struct tcp_bth_v1 {
	struct tcp_bth_head head;
	__be32 start_seq;	/* TCP sequence number of the message's first byte */
	__be32 length;		/* of the message, bytes */
};

/* be64 va is only 4-byte aligned in an option, hence two halves */
struct tcp_bth_reth {
	__be32 va_hi;
	__be32 va_lo;
	__be32 rkey;
	__be32 length;		/* DMA length; the immediate on *_WITH_IMM */
};

TCP_QP_STATIC_ASSERT(sizeof(struct tcp_bth_head) == 8, "tcp_bth_head");
TCP_QP_STATIC_ASSERT(sizeof(struct tcp_bth_v0) == TCP_BTH_HEAD_BYTES + TCP_BTH_V0_BYTES, "tcp_bth_v0");
TCP_QP_STATIC_ASSERT(sizeof(struct tcp_bth_v1) == TCP_BTH_HEAD_BYTES + TCP_BTH_V1_BYTES, "tcp_bth_v1");
TCP_QP_STATIC_ASSERT(sizeof(struct tcp_bth_reth) == TCP_BTH_RETH_BYTES, "tcp_bth_reth");

/* One option, in host order.  Unused fields are zero. */
struct tcp_bth {
	__u8 ver;		/* 0 or 1 */
	__u8 flags;		/* TCP_BTH_F_*, version bits cleared */
	__u8 opcode;		/* ver 0: with its variant for this segment; ver 1: the ONLY variant */
	__u8 ext_bytes;		/* 0, 4 or 16 */
	__u16 msn;
	__u8 segno;		/* ver 0 */
	__u8 reserved;
	__u32 start_seq;	/* ver 0: seq - mbo */
	__u32 length;		/* ver 1; bytes (of a train: of each message) */
	__u32 mbo;		/* offset of this segment's first byte in its message (train), bytes */
	__u32 icrc;		/* ver 0 */
	__u32 tsval, tsecr;	/* when TCP_BTH_F_TIMESTAMP */
	__u32 ext4;		/* imm, ieth, aeth or bytes of a train: ext_bytes == 4 */
	__u32 rkey;		/* RETH: ext_bytes == 16 */
	__u32 dma_length;	/* RETH: or the immediate */
	__u64 va;		/* RETH */
};

enum tcp_bth_error {
	TCP_BTH_OK = 0,
	TCP_BTH_E_NONE,		/* not our option */
	TCP_BTH_E_LENGTH,	/* len fits no layout */
	TCP_BTH_E_VERSION,
	TCP_BTH_E_RESERVED,	/* a bit that this version does not have is set */
	TCP_BTH_E_OPCODE,
	TCP_BTH_E_RANGE,	/* ver 1: this segment lies outside its message, or no such train can be */
	TCP_BTH_E_TWICE,	/* two tcp_bth options in one header */
	TCP_BTH_E_COUNT,
};

static inline __u16 tcp_bth_get16(const __u8 *p) { return (__u16)(p[0] << 8 | p[1]); }

static inline __u32 tcp_bth_get32(const __u8 *p)
{
	return (__u32)p[0] << 24 | (__u32)p[1] << 16 | (__u32)p[2] << 8 | p[3];
}

static inline void tcp_bth_put16(__u8 *p, __u16 v)
{
	p[0] = (__u8)(v >> 8);
	p[1] = (__u8)(v & 0xff);
}

static inline void tcp_bth_put32(__u8 *p, __u32 v)
{
	p[0] = (__u8)(v >> 24);
	p[1] = (__u8)(v >> 16 & 0xff);
	p[2] = (__u8)(v >> 8 & 0xff);
	p[3] = (__u8)(v & 0xff);
}

/* Where an opcode stands in its message: bit 0 first, bit 1 last. */
enum { TCP_BTH_POS_MIDDLE = 0, TCP_BTH_POS_FIRST = 1, TCP_BTH_POS_LAST = 2, TCP_BTH_POS_ONLY = 3 };

static inline int tcp_bth_position(__u8 opcode)
{
	switch (opcode) {
	case TCP_BTH_OP_SEND_FIRST:
	case TCP_BTH_OP_WRITE_FIRST:
	case TCP_BTH_OP_READ_RESPONSE_FIRST:
		return TCP_BTH_POS_FIRST;
	case TCP_BTH_OP_SEND_MIDDLE:
	case TCP_BTH_OP_WRITE_MIDDLE:
	case TCP_BTH_OP_READ_RESPONSE_MIDDLE:
		return TCP_BTH_POS_MIDDLE;
	case TCP_BTH_OP_SEND_LAST:
	case TCP_BTH_OP_SEND_LAST_IMM:
	case TCP_BTH_OP_SEND_LAST_INV:
	case TCP_BTH_OP_WRITE_LAST:
	case TCP_BTH_OP_WRITE_LAST_IMM:
	case TCP_BTH_OP_READ_RESPONSE_LAST:
		return TCP_BTH_POS_LAST;
	default:
		return TCP_BTH_POS_ONLY;
	}
}

/* The variant of a message's ONLY opcode for a segment at @pos in it. */
static inline __u8 tcp_bth_variant(__u8 only, int pos)
{
	if (pos == TCP_BTH_POS_ONLY)
		return only;
	switch (only) {
	case TCP_BTH_OP_SEND_ONLY:
		return pos == TCP_BTH_POS_LAST ? TCP_BTH_OP_SEND_LAST :
		       pos == TCP_BTH_POS_FIRST ? TCP_BTH_OP_SEND_FIRST : TCP_BTH_OP_SEND_MIDDLE;
	case TCP_BTH_OP_SEND_ONLY_IMM:
		return pos == TCP_BTH_POS_LAST ? TCP_BTH_OP_SEND_LAST_IMM :
		       pos == TCP_BTH_POS_FIRST ? TCP_BTH_OP_SEND_FIRST : TCP_BTH_OP_SEND_MIDDLE;
	case TCP_BTH_OP_SEND_ONLY_INV:
		return pos == TCP_BTH_POS_LAST ? TCP_BTH_OP_SEND_LAST_INV :
		       pos == TCP_BTH_POS_FIRST ? TCP_BTH_OP_SEND_FIRST : TCP_BTH_OP_SEND_MIDDLE;
	case TCP_BTH_OP_WRITE_ONLY:
		return pos == TCP_BTH_POS_LAST ? TCP_BTH_OP_WRITE_LAST :
		       pos == TCP_BTH_POS_FIRST ? TCP_BTH_OP_WRITE_FIRST : TCP_BTH_OP_WRITE_MIDDLE;
	case TCP_BTH_OP_WRITE_ONLY_IMM:
		return pos == TCP_BTH_POS_LAST ? TCP_BTH_OP_WRITE_LAST_IMM :
		       pos == TCP_BTH_POS_FIRST ? TCP_BTH_OP_WRITE_FIRST : TCP_BTH_OP_WRITE_MIDDLE;
	case TCP_BTH_OP_READ_RESPONSE_ONLY:
		return pos == TCP_BTH_POS_LAST ? TCP_BTH_OP_READ_RESPONSE_LAST :
		       pos == TCP_BTH_POS_FIRST ? TCP_BTH_OP_READ_RESPONSE_FIRST :
						  TCP_BTH_OP_READ_RESPONSE_MIDDLE;
	default:
		return only;	/* requests and acknowledges are one segment each */
	}
}

/* The opposite: the ONLY opcode when @opcode ends a message; itself otherwise. */
static inline __u8 tcp_bth_only(__u8 opcode)
{
	switch (opcode) {
	case TCP_BTH_OP_SEND_LAST: return TCP_BTH_OP_SEND_ONLY;
	case TCP_BTH_OP_SEND_LAST_IMM: return TCP_BTH_OP_SEND_ONLY_IMM;
	case TCP_BTH_OP_SEND_LAST_INV: return TCP_BTH_OP_SEND_ONLY_INV;
	case TCP_BTH_OP_WRITE_LAST: return TCP_BTH_OP_WRITE_ONLY;
	case TCP_BTH_OP_WRITE_LAST_IMM: return TCP_BTH_OP_WRITE_ONLY_IMM;
	case TCP_BTH_OP_READ_RESPONSE_LAST: return TCP_BTH_OP_READ_RESPONSE_ONLY;
	default: return opcode;
	}
}

static inline bool tcp_bth_is_send(__u8 opcode)
{
	return opcode <= TCP_BTH_OP_SEND_ONLY_IMM ||
	       opcode == TCP_BTH_OP_SEND_LAST_INV || opcode == TCP_BTH_OP_SEND_ONLY_INV ||
	       opcode == TCP_BTH_OP_SEND_TRAIN;
}

/* WRITEs, and the responses that are placed the same way: by their own RETH */
static inline bool tcp_bth_is_tagged(__u8 opcode)
{
	return opcode >= TCP_BTH_OP_WRITE_FIRST && opcode <= TCP_BTH_OP_READ_RESPONSE_ONLY &&
	       opcode != TCP_BTH_OP_READ_REQUEST;
}

/* Bytes of extension a whole message of @only (ONLY variant) carries. */
static inline unsigned int tcp_bth_ext_bytes(__u8 only)
{
	switch (only) {
	case TCP_BTH_OP_SEND_ONLY_IMM:
	case TCP_BTH_OP_SEND_ONLY_INV:
	case TCP_BTH_OP_SEND_TRAIN:
	case TCP_BTH_OP_ACKNOWLEDGE:
	case TCP_BTH_OP_ATOMIC_ACKNOWLEDGE:
		return TCP_BTH_EXT4_BYTES;
	case TCP_BTH_OP_WRITE_ONLY:
	case TCP_BTH_OP_WRITE_ONLY_IMM:
	case TCP_BTH_OP_READ_RESPONSE_ONLY:
		return TCP_BTH_RETH_BYTES;
	default:
		return 0;
	}
}

/**
 * tcp_bth_opt_bytes() - length of the option that tcp_bth_build() will write.
 * Always a multiple of four, at most TCP_BTH_OPT_MAX_BYTES.
 */
static inline unsigned int tcp_bth_opt_bytes(const struct tcp_bth *b)
{
	if (b->ver == 0)
		return TCP_BTH_HEAD_BYTES + TCP_BTH_V0_BYTES + b->ext_bytes;
	return TCP_BTH_HEAD_BYTES + TCP_BTH_V1_BYTES + b->ext_bytes +
	       (b->flags & TCP_BTH_F_TIMESTAMP ? (unsigned int)TCP_BTH_TS_BYTES : 0u);
}

/**
 * tcp_bth_build() - write one option at @opt, which has room for
 * tcp_bth_opt_bytes(@b).  Returns the bytes written.
 */
static inline unsigned int tcp_bth_build(__u8 *opt, const struct tcp_bth *b)
{
	unsigned int len = tcp_bth_opt_bytes(b);
	__u8 *p = opt + sizeof(struct tcp_bth_head);

	opt[0] = TCP_BTH_KIND;
	opt[1] = (__u8)len;
	tcp_bth_put16(opt + 2, TCP_BTH_EXID);
	opt[4] = (__u8)(b->flags | b->ver);
	opt[5] = b->opcode;
	tcp_bth_put16(opt + 6, b->msn);
	if (b->ver == 0) {
		tcp_bth_put32(p, b->mbo << 8 | b->segno);
		tcp_bth_put32(p + 4, b->flags & TCP_BTH_F_ICRC ? b->icrc : 0);
		p += 8;
	} else {
		tcp_bth_put32(p, b->start_seq);
		tcp_bth_put32(p + 4, b->length);
		p += 8;
	}
	if (b->flags & TCP_BTH_F_TIMESTAMP) {
		tcp_bth_put32(p, b->tsval);
		tcp_bth_put32(p + 4, b->tsecr);
		p += TCP_BTH_TS_BYTES;
	} else if (b->ver == 0) {
		memset(p, 0, TCP_BTH_TS_BYTES);
		p += TCP_BTH_TS_BYTES;
	}
	if (b->ext_bytes == TCP_BTH_EXT4_BYTES) {
		tcp_bth_put32(p, b->ext4);
	} else if (b->ext_bytes == TCP_BTH_RETH_BYTES) {
		tcp_bth_put32(p, (__u32)(b->va >> 32));
		tcp_bth_put32(p + 4, (__u32)b->va);
		tcp_bth_put32(p + 8, b->rkey);
		tcp_bth_put32(p + 12, b->dma_length);
	}
	return len;
}

/* Is a train of @bytes in messages of @length one that may be? */
static inline bool tcp_bth_train_valid(__u32 length, __u32 bytes)
{
	return length && bytes >= length && bytes % length == 0 &&
	       bytes / length <= TCP_BTH_TRAIN_MAX_MESSAGES;
}

/* ver 1: sequence numbers that the message, or the train, takes. */
static inline __u32 tcp_bth_stream_bytes(const struct tcp_bth *b)
{
	if (b->opcode == TCP_BTH_OP_SEND_TRAIN)
		return b->ext4;
	return b->length ? b->length : 1;
}

/**
 * tcp_bth_parse() - read one option.
 * @opt: points at the kind byte; @room bytes of header are readable from there
 * @seq: sequence number of the segment, host order
 * @payload: bytes of payload in the segment
 * @b: filled on TCP_BTH_OK, untouched otherwise
 *
 * Everything on the wire is hostile: whatever does not fit one of the two
 * layouts exactly is an error, and the segment is then plain TCP.
 */
static inline enum tcp_bth_error tcp_bth_parse(const __u8 *opt, unsigned int room, __u32 seq,
					       __u32 payload, struct tcp_bth *b)
{
	__u32 start_seq, mbo, icrc = 0, length = 0;
	unsigned int len, fixed, ext;
	__u8 ver, flags, opcode, segno = 0;
	const __u8 *p;
	bool times;

	if (room < TCP_BTH_HEAD_BYTES || opt[0] != TCP_BTH_KIND ||
	    opt[1] < TCP_BTH_HEAD_BYTES || tcp_bth_get16(opt + 2) != TCP_BTH_EXID)
		return TCP_BTH_E_NONE;
	len = opt[1];
	if (len > room || len < TCP_BTH_OPT_MIN_BYTES || len > TCP_BTH_OPT_MAX_BYTES)
		return TCP_BTH_E_LENGTH;
	ver = opt[4] & TCP_BTH_F_VER_MASK;
	flags = opt[4] & (__u8)~TCP_BTH_F_VER_MASK;
	opcode = opt[5];
	if (ver > 1)
		return TCP_BTH_E_VERSION;
	if (ver == 1 && flags & TCP_BTH_F_ICRC)
		return TCP_BTH_E_RESERVED;
	if (opcode >= TCP_BTH_OP_COUNT)
		return TCP_BTH_E_OPCODE;
	times = ver == 0 || flags & TCP_BTH_F_TIMESTAMP;
	fixed = ver == 0 ? TCP_BTH_HEAD_BYTES + TCP_BTH_V0_BYTES :
			   TCP_BTH_HEAD_BYTES + TCP_BTH_V1_BYTES +
			   (times ? (unsigned int)TCP_BTH_TS_BYTES : 0u);
	if (len < fixed)
		return TCP_BTH_E_LENGTH;
	ext = len - fixed;
	if (ext != 0 && ext != TCP_BTH_EXT4_BYTES && ext != TCP_BTH_RETH_BYTES)
		return TCP_BTH_E_LENGTH;

	p = opt + sizeof(struct tcp_bth_head);
	if (ver == 0) {
		__u32 mbo_seg = tcp_bth_get32(p);

		if (opcode == TCP_BTH_OP_SEND_TRAIN)
			return TCP_BTH_E_OPCODE;
		mbo = mbo_seg >> 8;
		segno = (__u8)mbo_seg;
		start_seq = seq - mbo;
		icrc = tcp_bth_get32(p + 4);
		if (payload && tcp_bth_position(opcode) & TCP_BTH_POS_FIRST && mbo)
			return TCP_BTH_E_RANGE;
	} else {
		__u32 stream_bytes;

		start_seq = tcp_bth_get32(p);
		length = tcp_bth_get32(p + 4);
		/* ver 1 names the message: only ONLY opcodes, and the segment lies inside */
		if (tcp_bth_position(opcode) != TCP_BTH_POS_ONLY)
			return TCP_BTH_E_OPCODE;
		stream_bytes = length ? length : 1;
		if (opcode == TCP_BTH_OP_SEND_TRAIN) {
			if (ext != TCP_BTH_EXT4_BYTES)
				return TCP_BTH_E_LENGTH;
			stream_bytes = tcp_bth_get32(opt + fixed);
			if (!tcp_bth_train_valid(length, stream_bytes))
				return TCP_BTH_E_RANGE;
		}
		mbo = payload ? seq - start_seq : 0;
		if (payload && (mbo > stream_bytes || payload > stream_bytes - mbo))
			return TCP_BTH_E_RANGE;
	}

	b->ver = ver;
	b->flags = flags;
	b->opcode = opcode;
	b->ext_bytes = (__u8)ext;
	b->msn = tcp_bth_get16(opt + 6);
	b->segno = segno;
	b->reserved = 0;
	b->start_seq = start_seq;
	b->length = length;
	b->mbo = mbo;
	b->icrc = icrc;
	b->tsval = times ? tcp_bth_get32(p + 8) : 0;
	b->tsecr = times ? tcp_bth_get32(p + 12) : 0;
	p = opt + fixed;
	b->ext4 = ext == TCP_BTH_EXT4_BYTES ? tcp_bth_get32(p) : 0;
	if (ext == TCP_BTH_RETH_BYTES) {
		b->va = (__u64)tcp_bth_get32(p) << 32 | tcp_bth_get32(p + 4);
		b->rkey = tcp_bth_get32(p + 8);
		b->dma_length = tcp_bth_get32(p + 12);
	} else {
		b->va = 0;
		b->rkey = 0;
		b->dma_length = 0;
	}
	return TCP_BTH_OK;
}

/**
 * tcp_bth_find() - the tcp_bth option among @room bytes of TCP options.
 * @opt_at: set to the option's offset in @opts on TCP_BTH_OK; may be NULL
 *
 * A header that carries the option twice is refused: a middlebox that copies
 * options must not make two readers see two messages.
 */
static inline enum tcp_bth_error tcp_bth_find(const __u8 *opts, unsigned int room, __u32 seq,
					      __u32 payload, struct tcp_bth *b, unsigned int *opt_at)
{
	enum tcp_bth_error err = TCP_BTH_E_NONE;
	unsigned int i = 0, len;

	while (i < room) {
		if (opts[i] == 0)
			break;
		if (opts[i] == 1) {
			i++;
			continue;
		}
		if (i + 2 > room)
			break;
		len = opts[i + 1];
		if (len < 2 || len > room - i)
			break;
		if (opts[i] == TCP_BTH_KIND && len >= TCP_BTH_HEAD_BYTES &&
		    tcp_bth_get16(opts + i + 2) == TCP_BTH_EXID) {
			if (err != TCP_BTH_E_NONE)
				return TCP_BTH_E_TWICE;
			err = tcp_bth_parse(opts + i, len, seq, payload, b);
			if (opt_at)
				*opt_at = i;
		}
		i += len;
	}
	return err;
}

/*
 * AETH of an ACKNOWLEDGE: our own use of IBTA's 32 bits (syndrome, MSN).
 * bits 31-24 syndrome, zero = credits; bits 23-17 zero; bit 16: takes trains;
 * bits 15-0 msn limit: the first untagged msn for which no receive is posted.
 */
enum { TCP_BTH_AETH_TRAINS = 1 << 16 };
static inline __u32 tcp_bth_aeth_credits(__u16 msn_limit) { return msn_limit; }

/* ---- operands: payload of small messages, all words big endian ---- */

enum {
	TCP_BTH_READ_REQUEST_BYTES = 28,	/* va, rkey, length of the source; va, key of the sink */
	TCP_BTH_ATOMIC_REQUEST_BYTES = 28,	/* IBTA AtomicETH: va, rkey, swap or add, compare */
	TCP_BTH_ATOMIC_RESPONSE_BYTES = 8,	/* the value before */
	TCP_BTH_TERMINATE_BYTES = 8,		/* start_seq; syndrome, opcode, msn */
	TCP_BTH_OPERANDS_MAX_BYTES = 28,
};

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
