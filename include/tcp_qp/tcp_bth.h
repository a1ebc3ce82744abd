/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * tcp_bth: the TCP option that names, on every data segment, the queue pair
 * message the payload belongs to and where in that message it lands.
 *
 * Layouts and limits.  tcp_bth_opcode.h has the opcodes, tcp_bth_option.h the one parser and the
 * one builder that the kernel modules, the switch, the library and the tests share,
 * tcp_bth_operands.h the payload of requests.  Pure: no socket, no clock.
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
 * WRITE_TRAIN (ver 1): the same for WRITEs without immediate.  The RETH's address
 * is the first one's, and its last word says how many there are and how far from
 * one to the next: number i goes to va + i * step * length (modulo 2^64), so that
 * 1 is side by side.  No two lie one over the other: then copying those before the
 * last one covers nothing of it, whatever of it was placed.  Peers say apart that
 * they take these.
 *
 * MIXED_TRAIN (ver 1): SENDs of any lengths (not zero), one behind the other.
 * Their lengths are the payload of a message LENGTHS right before them
 * (tcp_bth_mixed.h), which has the first one's msn; start_seq is the first one's,
 * the 4 bytes of extension are the bytes of all of them, and in the place of a
 * length is the check of their table, so that nobody takes another one for it.
 * The option is the same on all segments of the train.  A part that is of one
 * message may be described as a SEND.  Only to peers whose AETH says so.
 *
 * WRITE_MIXED_TRAIN (ver 1): the same for WRITEs without immediate, of any lengths
 * and to any targets of one key, no two of which lie one over the other.  The
 * message before them is TARGETS.  A part that is of one message may be described
 * as a WRITE.  Peers say apart that they take these, too.
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

#include <tcp_qp/tcp_bth_opcode.h>

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
	__be32 length;		/* DMA length; the immediate on *_WITH_IMM; step and messages of a train */
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
	__u32 length;		/* ver 1; bytes (of a train: of each message; of a mixed one: its check) */
	__u32 mbo;		/* offset of this segment's first byte in its message (train), bytes */
	__u32 icrc;		/* ver 0 */
	__u32 tsval, tsecr;	/* when TCP_BTH_F_TIMESTAMP */
	__u32 ext4;		/* imm, ieth, aeth or bytes of a train: ext_bytes == 4 */
	__u32 rkey;		/* RETH: ext_bytes == 16 */
	__u32 dma_length;	/* RETH: or the immediate, or a train's step << 16 | messages */
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

/*
 * AETH of an ACKNOWLEDGE: our own use of IBTA's 32 bits (syndrome, MSN).
 * bits 31-24 syndrome, zero = credits; bits 23-21 zero; bit 20: has room for more
 * sends, so that a few may be acknowledged together; bit 19: takes mixed
 * trains of WRITEs; bit 18: takes mixed trains of SENDs; bit 17: takes trains of
 * WRITEs; bit 16: takes trains of SENDs; bits 15-0 msn limit: the first untagged
 * msn for which no receive is posted.
 */
enum {
	TCP_BTH_AETH_TRAINS = 1 << 16,
	TCP_BTH_AETH_WRITE_TRAINS = 1 << 17,
	TCP_BTH_AETH_MIXED_TRAINS = 1 << 18,
	TCP_BTH_AETH_WRITE_MIXED_TRAINS = 1 << 19,
	TCP_BTH_AETH_ROOM = 1 << 20,
};
static inline __u32 tcp_bth_aeth_credits(__u16 msn_limit) { return msn_limit; }

#ifdef __cplusplus
}
#endif
#endif
