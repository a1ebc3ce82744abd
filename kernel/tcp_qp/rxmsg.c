// SPDX-License-Identifier: GPL-2.0
#include "rxmsg.h"

static enum tqp_msg_kind tqp_kind_of(__u8 opcode)
{
	switch (opcode) {
	case TCP_BTH_OP_SEND_MIDDLE:
	case TCP_BTH_OP_SEND_ONLY:
	case TCP_BTH_OP_SEND_ONLY_IMM:
	case TCP_BTH_OP_SEND_ONLY_INV:
		return TQP_MSG_SEND;
	case TCP_BTH_OP_WRITE_MIDDLE:
	case TCP_BTH_OP_WRITE_ONLY:
	case TCP_BTH_OP_WRITE_ONLY_IMM:
		return TQP_MSG_WRITE;
	case TCP_BTH_OP_READ_RESPONSE_MIDDLE:
	case TCP_BTH_OP_READ_RESPONSE_ONLY:
		return TQP_MSG_READ_RESPONSE;
	case TCP_BTH_OP_READ_REQUEST:
		return TQP_MSG_READ_REQUEST;
	case TCP_BTH_OP_CMP_SWAP:
	case TCP_BTH_OP_FETCH_ADD:
		return TQP_MSG_ATOMIC_REQUEST;
	case TCP_BTH_OP_ATOMIC_ACKNOWLEDGE:
		return TQP_MSG_ATOMIC_RESPONSE;
	case TCP_BTH_OP_TERMINATE:
		return TQP_MSG_TERMINATE;
	case TCP_BTH_OP_ACKNOWLEDGE:
		return TQP_MSG_ACKNOWLEDGE;
	default:
		return TQP_MSG_NONE;
	}
}

/* Of a message with operands, its only length. */
static __u32 tqp_operand_bytes(enum tqp_msg_kind kind)
{
	switch (kind) {
	case TQP_MSG_READ_REQUEST:
		return TCP_BTH_READ_REQUEST_BYTES;
	case TQP_MSG_ATOMIC_REQUEST:
		return TCP_BTH_ATOMIC_REQUEST_BYTES;
	case TQP_MSG_ATOMIC_RESPONSE:
		return TCP_BTH_ATOMIC_RESPONSE_BYTES;
	case TQP_MSG_TERMINATE:
		return TCP_BTH_TERMINATE_BYTES;
	default:
		return 0;
	}
}

/* The message's counter; NULL if it has none, or if it can't be told yet. */
static __u16 *tqp_number_of(const struct tqp_rx_msg *msg, struct tqp_rx_numbers *next)
{
	switch (msg->kind) {
	case TQP_MSG_SEND:
		return &next->untagged;
	case TQP_MSG_WRITE:
		if (!msg->opcode_known)
			return NULL;
		return tqp_rx_msg_untagged(msg) ? &next->untagged : &next->write;
	case TQP_MSG_READ_REQUEST:
	case TQP_MSG_ATOMIC_REQUEST:
		return &next->request;
	case TQP_MSG_READ_RESPONSE:
	case TQP_MSG_ATOMIC_RESPONSE:
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
	switch (map->opcode) {
	case TCP_BTH_OP_SEND_ONLY_IMM:
	case TCP_BTH_OP_SEND_ONLY_INV:
	case TCP_BTH_OP_WRITE_ONLY_IMM:
	case TCP_BTH_OP_ATOMIC_ACKNOWLEDGE:
	case TCP_BTH_OP_ACKNOWLEDGE:
		return map->flags & TQP_MAP_EXT4;
	default:
		return !(map->flags & TQP_MAP_EXT4);
	}
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
	if (msg->kind == TQP_MSG_NONE || !tqp_numbered(msg, next))
		return false;
	return msg->has_reth == (msg->kind == TQP_MSG_WRITE ||
				 msg->kind == TQP_MSG_READ_RESPONSE);
}

static bool tqp_learn_length(struct tqp_rx_msg *msg, __u32 length)
{
	__u32 operands = tqp_operand_bytes(msg->kind);

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
	if (map->flags & TQP_MAP_LENGTH_KNOWN && !tqp_learn_length(msg, map->length))
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
