// SPDX-License-Identifier: GPL-2.0
#include <tcp_qp/tcp_bth_option.h>
#include "wire/msgwire.h"

void tqp_bth_of(struct tcp_bth *bth, const struct tqp_msg_rec *rec, __u8 version, __u8 flags,
		__u32 seq, __u32 payload)
{
	*bth = (struct tcp_bth) {
		.ver = rec->length ? version : 1,	/* ver 0 can't say "zero bytes" */
		.flags = flags | rec->flags,
		.opcode = rec->opcode,
		.ext_bytes = rec->ext_bytes,
		.msn = rec->msn,
		.start_seq = rec->start_seq,
		.length = rec->length,
		.mbo = seq - rec->start_seq,
		.ext4 = rec->mixed ? 0 : rec->ext4,
		.va = rec->va,
		.rkey = rec->rkey,
		.dma_length = rec->dma_length,
	};
	if (rec->mixed)		/* of a SEND nothing is there */
		bth->dma_length = rec->ext_bytes ? rec->length : 0;
	if (bth->ver == 0) {
		int pos = (bth->mbo == 0 ? TCP_BTH_POS_FIRST : 0) |
			  (bth->mbo + payload == rec->length ? TCP_BTH_POS_LAST : 0);

		bth->opcode = tcp_bth_variant(rec->opcode, pos);
		if (tcp_bth_position(bth->opcode) != pos) {
			bth->ver = 1;	/* a part of a request has no opcode of its own */
			return;
		}
		/* only the segment that ends a WRITE bears its immediate */
		if (tcp_bth_op(rec->opcode)->ext == TCP_BTH_EXT_RETH_IMM && !(pos & TCP_BTH_POS_LAST))
			bth->dma_length = rec->length;
	}
}

/* The same for all segments of the train: whatever part of it they are. */
static void tqp_bth_of_mixed(struct tcp_bth *bth, const struct tqp_msg_rec *first,
			     const struct tqp_msg_rec *last, __u8 flags, __u32 seq)
{
	*bth = (struct tcp_bth) {
		.ver = 1,
		.flags = flags | (last->flags & TCP_BTH_F_MORE),
		.opcode = first->opcode == TCP_BTH_OP_WRITE_ONLY ? TCP_BTH_OP_WRITE_MIXED_TRAIN :
								    TCP_BTH_OP_MIXED_TRAIN,
		.ext_bytes = TCP_BTH_EXT4_BYTES,
		.msn = (__u16)(first->msn - first->train_place),
		.start_seq = first->mixed_start,
		.length = first->mixed_check,
		.mbo = seq - first->mixed_start,
		.ext4 = first->mixed_bytes,
	};
}

void tqp_bth_of_train(struct tcp_bth *bth, const struct tqp_msg_rec *first,
		      const struct tqp_msg_rec *last, __u8 flags, __u32 seq)
{
	__u16 behind = (__u16)(last->train_place - first->train_place);

	if (first->mixed) {
		tqp_bth_of_mixed(bth, first, last, flags, seq);
		return;
	}
	*bth = (struct tcp_bth) {
		.ver = 1,
		.flags = flags | last->flags,	/* solicited: the same for all; more: the last one's */
		.opcode = TCP_BTH_OP_SEND_TRAIN,
		.ext_bytes = TCP_BTH_EXT4_BYTES,
		.msn = first->msn,
		.start_seq = first->start_seq,
		.length = first->length,
		.mbo = seq - first->start_seq,
		.ext4 = last->start_seq + last->length - first->start_seq,
	};
	if (first->opcode != TCP_BTH_OP_WRITE_ONLY)
		return;
	bth->opcode = TCP_BTH_OP_WRITE_TRAIN;
	bth->ext_bytes = TCP_BTH_RETH_BYTES;
	bth->ext4 = 0;
	bth->va = first->va;
	bth->rkey = first->rkey;
	bth->dma_length = tcp_bth_train_word(behind + 1, (__u16)((last->va - first->va) / behind /
								  first->length));
}

/* RETH: an immediate in place of the length, or a length that is the message's. */
static void tqp_map_reth(struct tqp_skb_map *map, const struct tcp_bth *bth)
{
	if (bth->opcode == TCP_BTH_OP_WRITE_TRAIN) {
		map->ext4 = bth->dma_length;
		map->flags |= TQP_MAP_EXT4;
	} else if (tcp_bth_has_immediate(bth->opcode)) {
		map->ext4 = bth->dma_length;
		map->flags |= TQP_MAP_EXT4;
	} else if (!(map->flags & TQP_MAP_LENGTH_KNOWN)) {
		map->length = bth->dma_length;
		map->flags |= TQP_MAP_LENGTH_KNOWN;
	} else if (map->length != bth->dma_length) {
		return;		/* without a target: the receive loop refuses it */
	}
	map->va = bth->va;
	map->rkey = bth->rkey;
	map->flags |= TQP_MAP_RETH;
}

void tqp_map_fill(struct tqp_skb_map *map, const struct tcp_bth *bth, __u32 payload)
{
	memset(map, 0, sizeof(*map));
	map->start_seq = bth->start_seq;
	map->msn = bth->msn;
	if (bth->flags & TCP_BTH_F_SOLICITED)
		map->flags |= TQP_MAP_SOLICITED;
	if (bth->ver == 1 || tcp_bth_position(bth->opcode) & TCP_BTH_POS_LAST) {
		map->flags |= TQP_MAP_LENGTH_KNOWN | TQP_MAP_OPCODE_KNOWN;
		map->length = bth->ver == 1 ? bth->length : bth->mbo + payload;
		map->opcode = tcp_bth_only(bth->opcode);
	} else {
		/* equal for FIRST and MIDDLE, so that they may merge */
		map->opcode = tcp_bth_op(bth->opcode)->middle;
	}
	if (bth->ext_bytes == TCP_BTH_EXT4_BYTES) {
		map->flags |= TQP_MAP_EXT4;
		map->ext4 = bth->ext4;
	} else if (bth->ext_bytes == TCP_BTH_RETH_BYTES) {
		tqp_map_reth(map, bth);
	}
}

const struct tqp_skb_map *tqp_map_at(struct tqp_rx_train *train, const struct tqp_skb_map *map,
				     __u32 seq)
{
	__u32 place;

	if (tqp_mixed_has(&train->mixed, seq))
		return tqp_mixed_map(&train->mixed, map, seq, &train->one);
	if (map && !tcp_bth_is_even_train(map->opcode)) {
		train->bytes = 0;	/* its messages are over, or are told one by one */
		return map;		/* a mixed train is the receive loop's error here */
	}
	if (map) {
		train->all = *map;
		train->bytes = map->opcode == TCP_BTH_OP_SEND_TRAIN ? map->ext4 :
			       tcp_bth_write_train_bytes(map->length, map->ext4);
	}
	if (!tqp_in_train(train, seq))
		return map;
	place = (seq - train->all.start_seq) / train->all.length;
	train->one = train->all;
	if (train->all.opcode == TCP_BTH_OP_WRITE_TRAIN) {
		train->one.opcode = TCP_BTH_OP_WRITE_ONLY;
		train->one.va = tqp_train_va(train, place);
	} else {
		train->one.opcode = TCP_BTH_OP_SEND_ONLY;
	}
	train->one.flags &= (__u8)~TQP_MAP_EXT4;
	train->one.ext4 = 0;
	train->one.msn += (__u16)place;
	train->one.start_seq += place * train->all.length;
	return &train->one;
}
