/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The message log: which message owns which TCP sequence numbers.
 *
 * A record enters before its bytes are handed to TCP and leaves when they are
 * acknowledged, so every (re)transmission finds its message by sequence number
 * and nothing is remembered per packet.  Pure: no socket, no allocation, no
 * clock; the same source runs in the kernel, in unit tests and in the simulator.
 *
 * Records are in sequence order and contiguous except where plain bytes were
 * sent before the first.  The owner serialises all calls.
 */
#ifndef TQP_MSGLOG_H
#define TQP_MSGLOG_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#endif

struct tqp_msg_rec {
	__u32 start_seq;
	__u32 length;		/* of the message; a zero-length one takes one stream byte */
	__u16 msn;
	__u8 opcode;		/* ONLY variant */
	__u8 ext_bytes;
	__u8 flags;		/* TCP_BTH_F_SOLICITED, TCP_BTH_F_MORE */
	bool mixed;		/* of a mixed train, whose start, bytes and check are known */
	__u16 train_place;	/* in its train; 0: the first, or of none */
	union {
		__u32 ext4;
		__u32 mixed_check;
	};
	__u32 mixed_start;
	__u64 va;
	__u32 rkey;
	union {
		__u32 dma_length;
		__u32 mixed_bytes;
	};
};

struct tqp_msglog {
	struct tqp_msg_rec *rec;
	__u32 mask;		/* records - 1 */
	__u32 head;		/* oldest */
	__u32 tail;		/* next free */
	__u32 hint;		/* where the last find succeeded */
};

/* Sequence numbers a message takes. */
static inline __u32 tqp_msg_stream_bytes(__u32 length)
{
	return length ? length : 1;
}

static inline bool tqp_msg_owns(const struct tqp_msg_rec *rec, __u32 seq)
{
	return seq - rec->start_seq < tqp_msg_stream_bytes(rec->length);
}

static inline __u32 tqp_msglog_room(const struct tqp_msglog *log)
{
	return log->mask + 1 - (log->tail - log->head);
}

static inline bool tqp_msglog_full(const struct tqp_msglog *log)
{
	return !tqp_msglog_room(log);
}

/* Of those that count; there is one. */
static inline struct tqp_msg_rec *tqp_msglog_newest(struct tqp_msglog *log)
{
	return &log->rec[(log->tail - 1) & log->mask];
}

static inline bool tqp_msglog_empty(const struct tqp_msglog *log)
{
	return log->tail == log->head;
}

/* @rec: room for @entries (a power of two) records */
void tqp_msglog_init(struct tqp_msglog *log, struct tqp_msg_rec *rec, __u32 entries);

/* The same records in @rec, room for @entries (a power of two, and not less than before). */
void tqp_msglog_move(struct tqp_msglog *log, struct tqp_msg_rec *rec, __u32 entries);

/* The next free record, or NULL when full; it counts once tqp_msglog_commit() is called. */
static inline struct tqp_msg_rec *tqp_msglog_next(struct tqp_msglog *log)
{
	return tqp_msglog_full(log) ? NULL : &log->rec[log->tail & log->mask];
}

static inline void tqp_msglog_commit(struct tqp_msglog *log)
{
	log->tail++;
}

/* The record that owns @seq, or NULL. */
const struct tqp_msg_rec *tqp_msglog_find(struct tqp_msglog *log, __u32 seq);

/*
 * The record of the last of the @bytes (not zero) from @seq on, of which @first
 * owns the first: the same, or one of the same train.  NULL: they are neither.
 */
const struct tqp_msg_rec *tqp_msglog_last(struct tqp_msglog *log, const struct tqp_msg_rec *first,
					  __u32 seq, __u32 bytes);

/* Everything before @una is acknowledged. Returns how many records left. */
__u32 tqp_msglog_ack(struct tqp_msglog *log, __u32 una);

#endif
