/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A message on the wire: from its record in the log to the option of one
 * segment, and from a received option to what the receive loop must know.
 *
 * Pure, like msglog.h: the kernel, the unit tests and the simulator compile
 * the same source.
 */
#ifndef TQP_MSGWIRE_H
#define TQP_MSGWIRE_H

#include <tcp_qp/tcp_bth.h>
#include <tcp_qp/tcp_bth_mixed.h>
#include "wire/msglog.h"

/* What a data skb says of itself.  Equal for all segments of a message that may merge. */
struct tqp_skb_map {
	__u32 start_seq;
	__u32 length;		/* valid if TQP_MAP_LENGTH_KNOWN */
	__u64 va;
	__u32 rkey;		/* with va: valid if TQP_MAP_RETH */
	__u32 ext4;		/* of 4 bytes of extension; the immediate of a WRITE, the last word of their train */
	__u16 msn;
	__u8 opcode;		/* ONLY variant if TQP_MAP_OPCODE_KNOWN, else the MIDDLE of its kind */
	__u8 flags;		/* TQP_MAP_* */
};

enum {
	TQP_MAP_LENGTH_KNOWN = 1 << 0,
	TQP_MAP_EXT4 = 1 << 1,
	TQP_MAP_OPCODE_KNOWN = 1 << 2,
	TQP_MAP_RETH = 1 << 3,
	TQP_MAP_SOLICITED = 1 << 4,
};

/*
 * The option for @payload bytes at @seq of @rec's message, in layout @version
 * where that can say it.  Without timestamps; @flags: TCP_BTH_F_RTR and such.
 */
void tqp_bth_of(struct tcp_bth *bth, const struct tqp_msg_rec *rec, __u8 version, __u8 flags,
		__u32 seq, __u32 payload);

/*
 * The same for @payload bytes of a train, from @seq in @first's message to some
 * of @last's: tqp_msglog_last().
 */
void tqp_bth_of_train(struct tcp_bth *bth, const struct tqp_msg_rec *first,
		      const struct tqp_msg_rec *last, __u8 flags, __u32 seq);

/* @bth came with @payload (not zero) bytes of data. */
void tqp_map_fill(struct tqp_skb_map *map, const struct tcp_bth *bth, __u32 payload);

/*
 * The mixed train that is being received, from its table to its last byte.  The
 * stream is read in order, so one is enough, and its current message never goes back.
 */
struct tqp_rx_mixed {
	__u32 *entries;		/* [TCP_BTH_TABLE_MAX_WORDS], the owner's, from the first table on */
	struct tcp_bth_mixed all;	/* .bytes: of the stream; 0: none */
	__u32 start_seq;
	__u16 msn;		/* of the first message */
	bool writes;		/* the table is of TARGETS */
	__u32 at;		/* the current one, */
	__u32 at_seq;		/* and where it begins */
};

/* A train that is being received, and its current message. */
struct tqp_rx_train {
	__u32 bytes;		/* of the stream; 0: none */
	struct tqp_skb_map all;
	struct tqp_skb_map one;
	struct tqp_rx_mixed mixed;
};

static inline bool tqp_in_train(const struct tqp_rx_train *train, __u32 seq)
{
	return seq - train->all.start_seq < train->bytes;
}

/* ---- mixed.c ---- */
/*
 * The @bytes of a LENGTHS or TARGETS message with @msn, which are in @mixed->entries,
 * are all there: its train begins at @seq.  False: no such train can be.
 */
bool tqp_mixed_begin(struct tqp_rx_mixed *mixed, __u8 opcode, __u16 msn, __u32 seq, __u32 bytes);
/* Is stream byte @seq of the train?  No: it is over, if there was one. */
bool tqp_mixed_has(struct tqp_rx_mixed *mixed, __u32 seq);
/* Its message that owns @seq, which it has, becomes the current one: its length. */
__u32 tqp_mixed_go(struct tqp_rx_mixed *mixed, __u32 seq);
/*
 * That message, in @one.  Where @map (or NULL) says otherwise, @one is what no
 * message can be made of.
 */
const struct tqp_skb_map *tqp_mixed_map(struct tqp_rx_mixed *mixed, const struct tqp_skb_map *map,
					__u32 seq, struct tqp_skb_map *one);

/* Of a train of WRITEs: where its message number @place goes. */
static inline __u64 tqp_train_va(const struct tqp_rx_train *train, __u32 place)
{
	return train->all.va + (__u64)place * (train->all.ext4 >> 16) * train->all.length;
}

/*
 * What @map, of the skb that owns stream byte @seq, says of the message of that
 * byte.  TCP may have collapsed the skb and lost the mapping (NULL): a train's
 * messages begin without one then.  Valid until the next call.
 */
const struct tqp_skb_map *tqp_map_at(struct tqp_rx_train *train, const struct tqp_skb_map *map,
				     __u32 seq);

#endif
