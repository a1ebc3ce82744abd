// SPDX-License-Identifier: GPL-2.0
#include "rxmsg.h"

bool tqp_rx_msg_begin(struct tqp_rx_msg *msg, const struct tqp_skb_map *map, __u32 seq, __u16 msn)
{
	if (!map || map->start_seq != seq || map->msn != msn)
		return false;
	msg->active = true;
	msg->length_known = false;
	msg->start_seq = seq;
	msg->msn = msn;
	msg->done = 0;
	return true;
}

bool tqp_rx_msg_learn(struct tqp_rx_msg *msg, const struct tqp_skb_map *map)
{
	if (!map)
		return true;
	if (map->start_seq != msg->start_seq || map->msn != msg->msn)
		return false;
	if (!(map->flags & TQP_MAP_LENGTH_KNOWN))
		return true;
	if (msg->length_known && msg->length != map->length)
		return false;
	if (map->opcode != TCP_BTH_OP_SEND_ONLY && map->opcode != TCP_BTH_OP_SEND_ONLY_IMM)
		return false;
	if ((map->opcode == TCP_BTH_OP_SEND_ONLY_IMM) != !!(map->flags & TQP_MAP_EXT4))
		return false;
	msg->length_known = true;
	msg->length = map->length;
	msg->opcode = map->opcode;
	msg->ext4 = map->ext4;
	return msg->done <= tqp_msg_stream_bytes(msg->length);
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
