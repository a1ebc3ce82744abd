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

#include "msgwire.h"

struct tqp_rx_msg {
	bool active;
	bool length_known;
	__u8 opcode;		/* valid if length_known, as length and ext4 */
	__u16 msn;
	__u32 start_seq;
	__u32 length;
	__u32 done;		/* bytes taken so far */
	__u32 ext4;
};

/* Message @msn must begin at @seq; false: the peer broke the protocol.  @map may be NULL. */
bool tqp_rx_msg_begin(struct tqp_rx_msg *msg, const struct tqp_skb_map *map, __u32 seq, __u16 msn);

/*
 * What the next bytes' mapping adds to our knowledge of the message; NULL:
 * nothing (TCP collapsed the segment).  False: it contradicts what we know.
 */
bool tqp_rx_msg_learn(struct tqp_rx_msg *msg, const struct tqp_skb_map *map);

/* How many of the next @bytes of the stream are the message's. */
__u32 tqp_rx_msg_share(const struct tqp_rx_msg *msg, __u32 bytes);

/*
 * @bytes, at most its share, were put where they go.  True: the message is
 * whole and done its length; the owner clears active once it is completed.
 */
bool tqp_rx_msg_take(struct tqp_rx_msg *msg, __u32 bytes);

/* Are the next bytes the one stream byte of an empty message? */
static inline bool tqp_rx_msg_empty(const struct tqp_rx_msg *msg)
{
	return msg->length_known && !msg->length;
}

#endif
