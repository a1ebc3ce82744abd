/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The hello: what two connection managers tell each other in plain bytes
 * before a TCP connection becomes a queue pair.
 *
 *   16 bytes key (request, reply or number) | u8 flags | u8 revision |
 *   be16 private_bytes | be16 ird | be16 ord | private data
 *
 * In a connection by number both ends send the same kind.  Its private data is
 *
 *   be32 dest_qpn | be32 src_qpn | be32 rq_psn
 *
 * of 24 bits each; flags, ird and ord are zero.
 *
 * Shaped like MPA's frames (RFC 5044 section 7.1, RFC 6581), with keys of our
 * own, because what follows is not MPA.  Pure: no socket, no clock.
 */
#ifndef TQP_CM_WIRE_H
#define TQP_CM_WIRE_H

#include <linux/types.h>

enum {
	TQP_HELLO_KEY_BYTES = 16,
	TQP_HELLO_HEAD_BYTES = 24,
	TQP_HELLO_PRIVATE_MAX_BYTES = 255,	/* what an iw_cm event can carry */
	TQP_HELLO_MAX_BYTES = TQP_HELLO_HEAD_BYTES + TQP_HELLO_PRIVATE_MAX_BYTES,
	TQP_HELLO_DEPTH_MAX = 255,		/* ird, ord: the same */
	TQP_HELLO_REVISION = 1,
	TQP_HELLO_NUMBER_BYTES = 12,		/* private data of a number, neither more nor less */
	TQP_HELLO_F_REJECT = 0x20,		/* in a reply; MPA's bit.  The others are zero. */
};

enum tqp_hello_kind {
	TQP_HELLO_REQUEST,
	TQP_HELLO_REPLY,
	TQP_HELLO_NUMBER,
};

enum tqp_hello_error {
	TQP_HELLO_E_KEY = 1,
	TQP_HELLO_E_FLAGS,
	TQP_HELLO_E_REVISION,
	TQP_HELLO_E_LENGTH,
	TQP_HELLO_E_DEPTH,
	TQP_HELLO_E_RANGE,
};

/* Whom a connection by number is for, as its sender sees it. */
struct tqp_hello_number {
	__u32 dest_qpn;
	__u32 src_qpn;
	__u32 rq_psn;		/* what the sender of this expects first */
};

struct tqp_hello {
	__u8 flags;		/* TQP_HELLO_F_* */
	__u16 private_bytes;	/* they follow the head */
	__u16 ird;		/* RDMA READs the sender of this can serve at once */
	__u16 ord;		/* ... and wants to have outstanding */
};

/*
 * Of a frame, the first @have bytes are at @buf.  Returns how many more to
 * read before calling again, 0 when it is complete and @h filled, or
 * -enum tqp_hello_error, as early as it shows.  Never asks for more than
 * TQP_HELLO_MAX_BYTES in all, nor for a byte beyond the frame.
 */
int tqp_hello_parse(const __u8 *buf, __u32 have, enum tqp_hello_kind kind, struct tqp_hello *h);

/*
 * Writes a frame with h->private_bytes (at most TQP_HELLO_PRIVATE_MAX_BYTES)
 * from @private_data to @buf, which has room for all.  Returns its bytes.
 */
__u32 tqp_hello_build(__u8 *buf, enum tqp_hello_kind kind, const struct tqp_hello *h,
		      const void *private_data);

/* The same of a number, which always takes TQP_HELLO_HEAD_BYTES + TQP_HELLO_NUMBER_BYTES. */
__u32 tqp_hello_build_number(__u8 *buf, const struct tqp_hello_number *number);

/* Of a whole frame that was parsed as a number; 0, or -TQP_HELLO_E_RANGE: more than 24 bits. */
int tqp_hello_get_number(const __u8 *buf, struct tqp_hello_number *number);

#endif
