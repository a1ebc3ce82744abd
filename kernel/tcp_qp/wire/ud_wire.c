// SPDX-License-Identifier: GPL-2.0
#include <tcp_qp/tcp_bth.h>
#include "wire/ud_wire.h"

enum {
	TQP_UD_AT_VERSION = 0,
	TQP_UD_AT_OPCODE = 1,
	TQP_UD_AT_BYTES = 2,
	TQP_UD_AT_DEST = 4,	/* flags in the highest byte */
	TQP_UD_AT_SRC = 8,
	TQP_UD_AT_QKEY = 12,
	TQP_UD_AT_IMM = 16,
	TQP_UD_FLAGS_SHIFT = 24,
};

static int tqp_ud_check(const struct tqp_ud_head *head, __u32 src, __u32 payload)
{
	if (head->opcode != TQP_UD_SEND && head->opcode != TQP_UD_SEND_IMM)
		return -TQP_UD_E_OPCODE;
	if (head->flags & ~TQP_UD_F_SOLICITED || src > TQP_UD_QPN_MAX ||
	    (head->imm && !tqp_ud_has_immediate(head)))
		return -TQP_UD_E_RESERVED;
	if (head->bytes != payload || payload > TQP_UD_PAYLOAD_MAX_BYTES)
		return -TQP_UD_E_LENGTH;
	return 0;
}

int tqp_ud_parse(const __u8 *buf, __u32 bytes, struct tqp_ud_head *head)
{
	__u32 dest, src;

	if (bytes < TQP_UD_HEAD_BYTES)
		return -TQP_UD_E_SHORT;
	if (buf[TQP_UD_AT_VERSION] != TQP_UD_VERSION)
		return -TQP_UD_E_VERSION;
	dest = tcp_bth_get32(buf + TQP_UD_AT_DEST);
	src = tcp_bth_get32(buf + TQP_UD_AT_SRC);
	head->opcode = buf[TQP_UD_AT_OPCODE];
	head->flags = dest >> TQP_UD_FLAGS_SHIFT;
	head->bytes = tcp_bth_get16(buf + TQP_UD_AT_BYTES);
	head->dest_qpn = dest & TQP_UD_QPN_MAX;
	head->src_qpn = src & TQP_UD_QPN_MAX;
	head->qkey = tcp_bth_get32(buf + TQP_UD_AT_QKEY);
	head->imm = tcp_bth_get32(buf + TQP_UD_AT_IMM);
	return tqp_ud_check(head, src, bytes - TQP_UD_HEAD_BYTES);
}

void tqp_ud_build(__u8 *buf, const struct tqp_ud_head *head)
{
	buf[TQP_UD_AT_VERSION] = TQP_UD_VERSION;
	buf[TQP_UD_AT_OPCODE] = head->opcode;
	tcp_bth_put16(buf + TQP_UD_AT_BYTES, head->bytes);
	tcp_bth_put32(buf + TQP_UD_AT_DEST, (__u32)head->flags << TQP_UD_FLAGS_SHIFT | head->dest_qpn);
	tcp_bth_put32(buf + TQP_UD_AT_SRC, head->src_qpn);
	tcp_bth_put32(buf + TQP_UD_AT_QKEY, head->qkey);
	tcp_bth_put32(buf + TQP_UD_AT_IMM, head->imm);
}
