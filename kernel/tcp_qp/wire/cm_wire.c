// SPDX-License-Identifier: GPL-2.0
#include <tcp_qp/tcp_bth.h>
#include "wire/cm_wire.h"

/* By kind.  Written as arrays: a key has no terminating zero. */
static const __u8 tqp_hello_keys[][TQP_HELLO_KEY_BYTES] = {
	{ 't', 'c', 'p', '_', 'q', 'p', ' ', 'c', 'm', ' ', 'r', 'e', 'q', ' ', ' ', '\n' },
	{ 't', 'c', 'p', '_', 'q', 'p', ' ', 'c', 'm', ' ', 'r', 'e', 'p', ' ', ' ', '\n' },
	{ 't', 'c', 'p', '_', 'q', 'p', ' ', 'n', 'u', 'm', 'b', 'e', 'r', ' ', ' ', '\n' },
};

enum {
	TQP_HELLO_AT_FLAGS = 16,
	TQP_HELLO_AT_REVISION = 17,
	TQP_HELLO_AT_PRIVATE = 18,
	TQP_HELLO_AT_IRD = 20,
	TQP_HELLO_AT_ORD = 22,
	TQP_HELLO_24_BITS = 0xffffff,
};

/* In the private data of a number. */
enum {
	TQP_NUMBER_AT_DEST_QPN = 0,
	TQP_NUMBER_AT_SRC_QPN = 4,
	TQP_NUMBER_AT_RQ_PSN = 8,
};

/* What a number's head may not say. */
static int tqp_hello_check_number(const struct tqp_hello *h)
{
	if (h->private_bytes != TQP_HELLO_NUMBER_BYTES)
		return -TQP_HELLO_E_LENGTH;
	return h->ird || h->ord ? -TQP_HELLO_E_DEPTH : 0;
}

static int tqp_hello_parse_head(const __u8 *buf, enum tqp_hello_kind kind, struct tqp_hello *h)
{
	__u8 flags_allowed = kind == TQP_HELLO_REPLY ? TQP_HELLO_F_REJECT : 0;

	if (buf[TQP_HELLO_AT_FLAGS] & ~flags_allowed)
		return -TQP_HELLO_E_FLAGS;
	if (buf[TQP_HELLO_AT_REVISION] != TQP_HELLO_REVISION)
		return -TQP_HELLO_E_REVISION;
	h->flags = buf[TQP_HELLO_AT_FLAGS];
	h->private_bytes = tcp_bth_get16(buf + TQP_HELLO_AT_PRIVATE);
	h->ird = tcp_bth_get16(buf + TQP_HELLO_AT_IRD);
	h->ord = tcp_bth_get16(buf + TQP_HELLO_AT_ORD);
	if (h->private_bytes > TQP_HELLO_PRIVATE_MAX_BYTES)
		return -TQP_HELLO_E_LENGTH;
	return kind == TQP_HELLO_NUMBER ? tqp_hello_check_number(h) : 0;
}

int tqp_hello_parse(const __u8 *buf, __u32 have, enum tqp_hello_kind kind, struct tqp_hello *h)
{
	__u32 key_bytes = have < TQP_HELLO_KEY_BYTES ? have : TQP_HELLO_KEY_BYTES, all;
	int err;

	if (memcmp(buf, tqp_hello_keys[kind], key_bytes))
		return -TQP_HELLO_E_KEY;
	if (have < TQP_HELLO_HEAD_BYTES)
		return (int)(TQP_HELLO_HEAD_BYTES - have);
	err = tqp_hello_parse_head(buf, kind, h);
	if (err)
		return err;
	all = TQP_HELLO_HEAD_BYTES + h->private_bytes;
	return have <= all ? (int)(all - have) : -TQP_HELLO_E_LENGTH;
}

__u32 tqp_hello_build(__u8 *buf, enum tqp_hello_kind kind, const struct tqp_hello *h,
		      const void *private_data)
{
	memcpy(buf, tqp_hello_keys[kind], TQP_HELLO_KEY_BYTES);
	buf[TQP_HELLO_AT_FLAGS] = h->flags;
	buf[TQP_HELLO_AT_REVISION] = TQP_HELLO_REVISION;
	tcp_bth_put16(buf + TQP_HELLO_AT_PRIVATE, h->private_bytes);
	tcp_bth_put16(buf + TQP_HELLO_AT_IRD, h->ird);
	tcp_bth_put16(buf + TQP_HELLO_AT_ORD, h->ord);
	if (h->private_bytes)
		memcpy(buf + TQP_HELLO_HEAD_BYTES, private_data, h->private_bytes);
	return TQP_HELLO_HEAD_BYTES + h->private_bytes;
}

__u32 tqp_hello_build_number(__u8 *buf, const struct tqp_hello_number *number)
{
	const struct tqp_hello head = { .private_bytes = TQP_HELLO_NUMBER_BYTES };
	__u8 data[TQP_HELLO_NUMBER_BYTES];

	tcp_bth_put32(data + TQP_NUMBER_AT_DEST_QPN, number->dest_qpn);
	tcp_bth_put32(data + TQP_NUMBER_AT_SRC_QPN, number->src_qpn);
	tcp_bth_put32(data + TQP_NUMBER_AT_RQ_PSN, number->rq_psn);
	return tqp_hello_build(buf, TQP_HELLO_NUMBER, &head, data);
}

int tqp_hello_get_number(const __u8 *buf, struct tqp_hello_number *number)
{
	const __u8 *data = buf + TQP_HELLO_HEAD_BYTES;

	number->dest_qpn = tcp_bth_get32(data + TQP_NUMBER_AT_DEST_QPN);
	number->src_qpn = tcp_bth_get32(data + TQP_NUMBER_AT_SRC_QPN);
	number->rq_psn = tcp_bth_get32(data + TQP_NUMBER_AT_RQ_PSN);
	if ((number->dest_qpn | number->src_qpn | number->rq_psn) & ~TQP_HELLO_24_BITS)
		return -TQP_HELLO_E_RANGE;
	return 0;
}
