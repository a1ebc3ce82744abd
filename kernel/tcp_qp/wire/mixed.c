// SPDX-License-Identifier: GPL-2.0
/*
 * A mixed train as its receiver reads it: whose the next byte is says the table
 * that came before it, and every option on the way must agree.
 */
#include "wire/msgwire.h"

bool tqp_mixed_begin(struct tqp_rx_mixed *mixed, __u16 msn, __u32 seq, __u32 bytes)
{
	if (!tcp_bth_mixed_read((const __u8 *)mixed->entries, bytes, mixed->entries, &mixed->all)) {
		mixed->all.bytes = 0;
		return false;
	}
	mixed->start_seq = seq;
	mixed->msn = msn;
	mixed->at = 0;
	mixed->at_seq = seq;
	return true;
}

bool tqp_mixed_has(struct tqp_rx_mixed *mixed, __u32 seq)
{
	if (seq - mixed->start_seq < mixed->all.bytes)
		return true;
	mixed->all.bytes = 0;
	return false;
}

__u32 tqp_mixed_go(struct tqp_rx_mixed *mixed, __u32 seq)
{
	__u32 length = tcp_bth_mixed_length(mixed->entries[mixed->at]);

	while (seq - mixed->at_seq >= length && mixed->at + 1 < mixed->all.messages) {
		mixed->at_seq += length;
		mixed->at++;
		length = tcp_bth_mixed_length(mixed->entries[mixed->at]);
	}
	return length;
}

static bool tqp_mixed_agrees(const struct tqp_rx_mixed *mixed, const struct tqp_skb_map *map,
			     const struct tqp_skb_map *one)
{
	if (map->opcode == TCP_BTH_OP_MIXED_TRAIN)
		return map->start_seq == mixed->start_seq && map->msn == mixed->msn &&
		       map->length == mixed->all.check && map->ext4 == mixed->all.bytes;
	return map->start_seq == one->start_seq && map->msn == one->msn &&
	       !(map->flags & (TQP_MAP_EXT4 | TQP_MAP_RETH)) &&
	       (map->flags & TQP_MAP_LENGTH_KNOWN ?
			map->opcode == TCP_BTH_OP_SEND_ONLY && map->length == one->length :
			map->opcode == TCP_BTH_OP_SEND_MIDDLE);
}

const struct tqp_skb_map *tqp_mixed_map(struct tqp_rx_mixed *mixed, const struct tqp_skb_map *map,
					__u32 seq, struct tqp_skb_map *one)
{
	__u32 length = tqp_mixed_go(mixed, seq), entry = mixed->entries[mixed->at];

	*one = (struct tqp_skb_map) {
		.start_seq = mixed->at_seq,
		.length = length,
		.msn = (__u16)(mixed->msn + mixed->at),
		.opcode = TCP_BTH_OP_SEND_ONLY,
		.flags = TQP_MAP_LENGTH_KNOWN | TQP_MAP_OPCODE_KNOWN |
			 (entry & TCP_BTH_LENGTHS_SOLICITED ? TQP_MAP_SOLICITED : 0),
	};
	if (map && !tqp_mixed_agrees(mixed, map, one))
		one->opcode = TCP_BTH_OP_MIXED_TRAIN;	/* no message has it */
	return one;
}
