// SPDX-License-Identifier: GPL-2.0
#include "msgwire.h"

void tqp_bth_of(struct tcp_bth *bth, const struct tqp_msg_rec *rec, __u8 version, __u8 flags,
		__u32 seq, __u32 payload)
{
	*bth = (struct tcp_bth) {
		.ver = rec->length ? version : 1,	/* ver 0 can't say "zero bytes" */
		.flags = flags,
		.opcode = rec->opcode,
		.ext_bytes = rec->ext_bytes,
		.msn = rec->msn,
		.start_seq = rec->start_seq,
		.length = rec->length,
		.mbo = seq - rec->start_seq,
		.ext4 = rec->ext4,
		.va = rec->va,
		.rkey = rec->rkey,
		.dma_length = rec->dma_length,
	};
	if (bth->ver == 0)
		bth->opcode = tcp_bth_variant(rec->opcode,
			(bth->mbo == 0 ? TCP_BTH_POS_FIRST : 0) |
			(bth->mbo + payload == rec->length ? TCP_BTH_POS_LAST : 0));
}

void tqp_map_fill(struct tqp_skb_map *map, const struct tcp_bth *bth, __u32 payload)
{
	int pos = tcp_bth_position(bth->opcode);

	memset(map, 0, sizeof(*map));
	map->magic = TQP_MAP_MAGIC;
	map->start_seq = bth->start_seq;
	map->msn = bth->msn;
	if (bth->ext_bytes == TCP_BTH_EXT4_BYTES) {
		map->flags |= TQP_MAP_EXT4;
		map->ext4 = bth->ext4;
	}
	if (bth->ver == 1 || pos & TCP_BTH_POS_LAST) {
		map->flags |= TQP_MAP_LENGTH_KNOWN;
		map->length = bth->ver == 1 ? bth->length : bth->mbo + payload;
		map->opcode = tcp_bth_only(bth->opcode);
	} else {
		map->opcode = TCP_BTH_OP_SEND_MIDDLE;	/* equal for FIRST and MIDDLE: they may merge */
	}
}
