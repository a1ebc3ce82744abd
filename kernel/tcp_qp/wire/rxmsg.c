// SPDX-License-Identifier: GPL-2.0
#include "wire/rxmsg.h"

/* A mapping bears ONLY, or MIDDLE while the last segment has not told more; see tqp_map_fill(). */
static inline enum tcp_bth_kind tqp_kind_of(__u8 opcode)
{
	const struct tcp_bth_op_info *op = tcp_bth_op(opcode);

	if (tcp_bth_is_train(opcode) ||
	    (op->position != TCP_BTH_POS_ONLY && op->position != TCP_BTH_POS_MIDDLE))
		return TCP_BTH_KIND_NONE;
	return op->kind;
}

/* The message's counter; NULL if it has none, or if it can't be told yet. */
static inline __u16 *tqp_number_of(const struct tqp_rx_msg *msg, struct tqp_rx_numbers *next)
{
	switch (msg->kind) {
	case TCP_BTH_KIND_SEND:
		return &next->untagged;
	case TCP_BTH_KIND_WRITE:
		if (!msg->opcode_known)
			return NULL;
		return tqp_rx_msg_untagged(msg) ? &next->untagged : &next->write;
	case TCP_BTH_KIND_READ_REQUEST:
	case TCP_BTH_KIND_ATOMIC_REQUEST:
		return &next->request;
	case TCP_BTH_KIND_READ_RESPONSE:
	case TCP_BTH_KIND_ATOMIC_RESPONSE:
		return &next->response;
	default:
		return NULL;
	}
}

static bool tqp_numbered(const struct tqp_rx_msg *msg, struct tqp_rx_numbers *next)
{
	const __u16 *number = tqp_number_of(msg, next);

	return !number || *number == msg->msn;
}

/* Four bytes of extension where the opcode wants them, and nowhere else. */
static bool tqp_ext4_fits(const struct tqp_skb_map *map)
{
	const struct tcp_bth_op_info *op = tcp_bth_op(map->opcode);
	bool wanted = op->ext != TCP_BTH_EXT_NONE && op->ext != TCP_BTH_EXT_RETH;

	return wanted == !!(map->flags & TQP_MAP_EXT4);
}

bool tqp_rx_msg_begin(struct tqp_rx_msg *msg, const struct tqp_skb_map *map, __u32 seq,
		      struct tqp_rx_numbers *next)
{
	if (!map || map->start_seq != seq)
		return false;
	*msg = (struct tqp_rx_msg) {
		.active = true,
		.kind = tqp_kind_of(map->opcode),
		.msn = map->msn,
		.start_seq = seq,
		.has_reth = map->flags & TQP_MAP_RETH,
		.va = map->va,
		.rkey = map->rkey,
	};
	if (msg->kind == TCP_BTH_KIND_NONE || !tqp_numbered(msg, next))
		return false;
	return msg->has_reth == (msg->kind == TCP_BTH_KIND_WRITE ||
				 msg->kind == TCP_BTH_KIND_READ_RESPONSE);
}

static bool tqp_learn_length(struct tqp_rx_msg *msg, const struct tqp_skb_map *map)
{
	__u32 operands = tcp_bth_op(map->opcode)->operand_bytes, length = map->length;

	if ((msg->length_known && msg->length != length) || (operands && length != operands))
		return false;
	msg->length_known = true;
	msg->length = length;
	return msg->done <= tqp_msg_stream_bytes(length);
}

static bool tqp_learn_opcode(struct tqp_rx_msg *msg, const struct tqp_skb_map *map,
			     struct tqp_rx_numbers *next)
{
	if ((msg->opcode_known && msg->opcode != map->opcode) || !tqp_ext4_fits(map))
		return false;
	msg->opcode_known = true;
	msg->opcode = map->opcode;
	msg->ext4 = map->ext4;
	msg->solicited = map->flags & TQP_MAP_SOLICITED;
	return tqp_numbered(msg, next);
}

bool tqp_rx_msg_learn(struct tqp_rx_msg *msg, const struct tqp_skb_map *map,
		      struct tqp_rx_numbers *next)
{
	if (!map)
		return true;
	if (map->start_seq != msg->start_seq || map->msn != msg->msn ||
	    tqp_kind_of(map->opcode) != msg->kind ||
	    !(map->flags & TQP_MAP_RETH) != !msg->has_reth || map->va != msg->va ||
	    map->rkey != msg->rkey)
		return false;
	if (map->flags & TQP_MAP_LENGTH_KNOWN && !tqp_learn_length(msg, map))
		return false;
	return !(map->flags & TQP_MAP_OPCODE_KNOWN) || tqp_learn_opcode(msg, map, next);
}

__u32 tqp_rx_msg_share(const struct tqp_rx_msg *msg, __u32 bytes)
{
	__u32 left = tqp_msg_stream_bytes(msg->length) - msg->done;

	return msg->length_known && bytes > left ? left : bytes;
}

bool tqp_rx_msg_take(struct tqp_rx_msg *msg, __u32 bytes)
{
	msg->done += bytes;
	if (!msg->length_known || msg->done != tqp_msg_stream_bytes(msg->length))
		return false;
	msg->done = msg->length;
	return true;
}

void tqp_rx_msg_count(const struct tqp_rx_msg *msg, struct tqp_rx_numbers *next)
{
	__u16 *number = tqp_number_of(msg, next);

	if (number)
		(*number)++;
}
