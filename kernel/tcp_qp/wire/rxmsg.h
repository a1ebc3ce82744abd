/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The message being received: which one the next bytes of the stream belong
 * to, how many of them, and when it is whole.
 *
 * The stream is a sequence of messages without gaps, each with a mapping on
 * its segments.  Pure, like msglog.h.  The owner serialises all calls.
 */
#ifndef TQP_RXMSG_H
#define TQP_RXMSG_H

#include "wire/msgwire.h"

/* The next number of each space. */
struct tqp_rx_numbers {
	__u16 untagged;		/* SEND, WRITE with immediate: they take a receive */
	__u16 write;
	__u16 request;		/* READ, atomics */
	__u16 response;
};

/* Messages completed from @before to @now: fewer than 65,536 of each space. */
static inline __u32 tqp_rx_numbers_since(const struct tqp_rx_numbers *now,
					 const struct tqp_rx_numbers *before)
{
	return (__u16)(now->untagged - before->untagged) + (__u16)(now->write - before->write) +
	       (__u16)(now->request - before->request) + (__u16)(now->response - before->response);
}

struct tqp_rx_msg {
	bool active;
	bool length_known;
	bool opcode_known;
	bool solicited;
	bool has_reth;
	__u8 kind;		/* enum tcp_bth_kind */
	__u8 opcode;		/* valid if opcode_known, as ext4 and solicited */
	__u16 msn;
	__u32 start_seq;
	__u32 length;		/* valid if length_known */
	__u32 done;		/* bytes taken so far */
	__u32 ext4;
	__u32 rkey;
	__u64 va;
};

/*
 * A message must begin at @seq, with the number that is next in its space;
 * false: the peer broke the protocol.  @map may be NULL.
 */
bool tqp_rx_msg_begin(struct tqp_rx_msg *msg, const struct tqp_skb_map *map, __u32 seq,
		      struct tqp_rx_numbers *next);

/*
 * What the next bytes' mapping adds to our knowledge of the message; NULL:
 * nothing (TCP collapsed the segment).  False: it contradicts what we know.
 */
bool tqp_rx_msg_learn(struct tqp_rx_msg *msg, const struct tqp_skb_map *map,
		      struct tqp_rx_numbers *next);

/* How many of the next @bytes of the stream are the message's. */
__u32 tqp_rx_msg_share(const struct tqp_rx_msg *msg, __u32 bytes);

/*
 * @bytes, at most its share, were put where they go.  True: the message is
 * whole and done its length; the owner clears active once it is completed.
 */
bool tqp_rx_msg_take(struct tqp_rx_msg *msg, __u32 bytes);

/* The message is completed: its space goes on. */
void tqp_rx_msg_count(const struct tqp_rx_msg *msg, struct tqp_rx_numbers *next);

/* Are the next bytes the one stream byte of an empty message? */
static inline bool tqp_rx_msg_empty(const struct tqp_rx_msg *msg)
{
	return msg->length_known && !msg->length;
}

/* Does its completion take a receive?  Known at its last byte at the latest. */
static inline bool tqp_rx_msg_untagged(const struct tqp_rx_msg *msg)
{
	return msg->kind == TCP_BTH_KIND_SEND ||
	       (msg->opcode_known && tcp_bth_takes_receive(msg->opcode));
}

#endif
