// SPDX-License-Identifier: GPL-2.0
/*
 * A mixed train as its receiver reads it: whose the next byte is says the table
 * that came before it, and every option on the way must agree.
 */
#include "wire/msgwire.h"

bool tqp_mixed_begin(struct tqp_rx_mixed *mixed, __u8 opcode, __u16 msn, __u32 seq, __u32 bytes)
{
	const __u8 *from = (const __u8 *)mixed->entries;
	bool writes = opcode == TCP_BTH_OP_TARGETS;

	if (writes ? !tcp_bth_targets_read(from, bytes, mixed->entries, &mixed->all) :
		     !tcp_bth_mixed_read(from, bytes, mixed->entries, &mixed->all)) {
		mixed->all.bytes = 0;
		return false;
	}
	mixed->writes = writes;
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

static __u32 tqp_mixed_length(const struct tqp_rx_mixed *mixed)
{
	return mixed->writes ? tcp_bth_target_length(mixed->entries, mixed->at) :
			       tcp_bth_mixed_length(mixed->entries[mixed->at]);
}

__u32 tqp_mixed_go(struct tqp_rx_mixed *mixed, __u32 seq)
{
	__u32 length = tqp_mixed_length(mixed);

	while (seq - mixed->at_seq >= length && mixed->at + 1 < mixed->all.messages) {
		mixed->at_seq += length;
		mixed->at++;
		length = tqp_mixed_length(mixed);
	}
	return length;
}

/* What @map says of the message is what the table says of it? */
static bool tqp_mixed_agrees_one(const struct tqp_skb_map *map, const struct tqp_skb_map *one)
{
	const __u8 middle = tcp_bth_op(one->opcode)->middle;

	if (map->start_seq != one->start_seq || map->msn != one->msn || map->flags & TQP_MAP_EXT4 ||
	    (map->flags ^ one->flags) & TQP_MAP_RETH || map->va != one->va || map->rkey != one->rkey)
		return false;
	if (map->flags & TQP_MAP_LENGTH_KNOWN && map->length != one->length)
		return false;
	return map->opcode == (map->flags & TQP_MAP_OPCODE_KNOWN ? one->opcode : middle);
}

static bool tqp_mixed_agrees(const struct tqp_rx_mixed *mixed, const struct tqp_skb_map *map,
			     const struct tqp_skb_map *one)
{
	if (tcp_bth_is_mixed_train(map->opcode))
		return map->opcode == (mixed->writes ? TCP_BTH_OP_WRITE_MIXED_TRAIN :
						       TCP_BTH_OP_MIXED_TRAIN) &&
		       map->start_seq == mixed->start_seq && map->msn == mixed->msn &&
		       map->length == mixed->all.check && map->ext4 == mixed->all.bytes;
	return tqp_mixed_agrees_one(map, one);
}

const struct tqp_skb_map *tqp_mixed_map(struct tqp_rx_mixed *mixed, const struct tqp_skb_map *map,
					__u32 seq, struct tqp_skb_map *one)
{
	__u32 length = tqp_mixed_go(mixed, seq);

	*one = (struct tqp_skb_map) {
		.start_seq = mixed->at_seq,
		.length = length,
		.msn = (__u16)(mixed->msn + mixed->at),
		.opcode = TCP_BTH_OP_SEND_ONLY,
		.flags = TQP_MAP_LENGTH_KNOWN | TQP_MAP_OPCODE_KNOWN,
	};
	if (mixed->writes) {
		one->opcode = TCP_BTH_OP_WRITE_ONLY;
		one->flags |= TQP_MAP_RETH;
		one->va = tcp_bth_target_va(mixed->entries, mixed->at);
		one->rkey = tcp_bth_targets_rkey(mixed->entries);
	} else if (mixed->entries[mixed->at] & TCP_BTH_LENGTHS_SOLICITED) {
		one->flags |= TQP_MAP_SOLICITED;
	}
	if (map && !tqp_mixed_agrees(mixed, map, one))
		one->opcode = TCP_BTH_OP_MIXED_TRAIN;	/* no message has it */
	return one;
}
