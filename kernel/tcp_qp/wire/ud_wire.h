/* SPDX-License-Identifier: GPL-2.0 */
/*
 * UD: what a datagram says of itself, before its payload, big endian.
 *
 *   u8 version | u8 opcode | be16 payload bytes
 *   u8 flags   | be24 destination QPN
 *   u8 zero    | be24 source QPN
 *   be32 QKEY
 *   be32 immediate, zero without one
 *
 * The fields are IBTA's BTH and DETH without those that one datagram of one path
 * has no use for (partition, PSN, path migration, acknowledge request); opcodes
 * are IBTA's own.  UDP's checksum covers it all.  One message is one datagram.
 * Pure: no socket, no clock.
 */
#ifndef TQP_UD_WIRE_H
#define TQP_UD_WIRE_H

#include <linux/types.h>

enum {
	TQP_UD_VERSION = 1,
	TQP_UD_HEAD_BYTES = 20,
	TQP_UD_PAYLOAD_MAX_BYTES = 4096,	/* IBTA's largest MTU */
	TQP_UD_SEND = 0x64,			/* IBTA table 38: UD, SEND only */
	TQP_UD_SEND_IMM = 0x65,
	TQP_UD_F_SOLICITED = 1 << 0,		/* the other flags are zero */
	TQP_UD_QPN_MAX = (1 << 24) - 1,
};

enum tqp_ud_error {
	TQP_UD_E_SHORT = 1,
	TQP_UD_E_VERSION,
	TQP_UD_E_OPCODE,
	TQP_UD_E_RESERVED,
	TQP_UD_E_LENGTH,
};

struct tqp_ud_head {
	__u8 opcode;
	__u8 flags;		/* TQP_UD_F_* */
	__u16 bytes;		/* of payload */
	__u32 dest_qpn;
	__u32 src_qpn;
	__u32 qkey;
	__u32 imm;
};

/*
 * @buf has the head of a datagram of @bytes in all (or all of it, if it is shorter).
 * 0, and @head is filled, or -enum tqp_ud_error.
 */
int tqp_ud_parse(const __u8 *buf, __u32 bytes, struct tqp_ud_head *head);
/* Writes TQP_UD_HEAD_BYTES to @buf. */
void tqp_ud_build(__u8 *buf, const struct tqp_ud_head *head);

static inline int tqp_ud_has_immediate(const struct tqp_ud_head *head)
{
	return head->opcode == TQP_UD_SEND_IMM;
}

#endif
