/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * The payload of LENGTHS: how long the SENDs of the mixed train are that begins
 * right behind it.
 *
 *   be32 for each message: bit 31 solicited, bits 30-24 zero, bits 23-0 length (not zero)
 *
 * The payload of TARGETS: the same of WRITEs, and where they go.
 *
 *   be32 key, then for each message: be32 length (bits 31-24 zero, not zero), be64 address
 *
 * Kernel and switch read the same bytes, each by itself, and must come to the
 * same messages: this is the one reader.  A table is words in host order once it
 * was read.
 */
#ifndef TCP_QP_TCP_BTH_MIXED_H
#define TCP_QP_TCP_BTH_MIXED_H

#include <tcp_qp/tcp_bth.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	TCP_BTH_LENGTHS_ENTRY_BYTES = 4,
	TCP_BTH_MIXED_MAX_MESSAGES = 256,
	TCP_BTH_LENGTHS_MAX_BYTES = TCP_BTH_LENGTHS_ENTRY_BYTES * TCP_BTH_MIXED_MAX_MESSAGES,
	TCP_BTH_LENGTHS_LENGTH_MASK = 0x00ffffff,

	TCP_BTH_TARGET_WORDS = 3,		/* length, address: high, low */
	TCP_BTH_TARGETS_HEAD_WORDS = 1,		/* key */
	TCP_BTH_TARGETS_MAX_MESSAGES = 104,	/* so that the smallest MSS of an Ethernet has them all */
	TCP_BTH_TARGETS_MAX_BYTES = 4 * (TCP_BTH_TARGETS_HEAD_WORDS +
					 TCP_BTH_TARGET_WORDS * TCP_BTH_TARGETS_MAX_MESSAGES),

	/* A table of either kind. */
	TCP_BTH_TABLE_MAX_BYTES = TCP_BTH_TARGETS_MAX_BYTES,
	TCP_BTH_TABLE_MAX_WORDS = TCP_BTH_TABLE_MAX_BYTES / 4,
};
TCP_QP_STATIC_ASSERT(TCP_BTH_TABLE_MAX_BYTES >= TCP_BTH_LENGTHS_MAX_BYTES, "a table of lengths");
#define TCP_BTH_LENGTHS_SOLICITED 0x80000000u

/* What the train's option says of them. */
struct tcp_bth_mixed {
	__u32 messages;
	__u32 bytes;
	__u32 check;
};

static inline __u32 tcp_bth_mixed_length(__u32 entry) { return entry & TCP_BTH_LENGTHS_LENGTH_MASK; }

static inline void tcp_bth_mixed_begin(struct tcp_bth_mixed *mixed)
{
	mixed->messages = 0;
	mixed->bytes = 0;
	mixed->check = 0x811c9dc5u;
}

/* One more word.  It tells tables apart that were not made to be alike, and no more. */
static inline void tcp_bth_mixed_mark(struct tcp_bth_mixed *mixed, __u32 word)
{
	__u32 mark = mixed->check ^ word;

	mixed->check = (mark << 13 | mark >> 19) * 0x9e3779b1u;
}

/* One more message. */
static inline void tcp_bth_mixed_add(struct tcp_bth_mixed *mixed, __u32 entry)
{
	mixed->messages++;
	mixed->bytes += tcp_bth_mixed_length(entry);
	tcp_bth_mixed_mark(mixed, entry);
}

/* The same of WRITEs: first the key, then each of them. */
static inline void tcp_bth_targets_begin(struct tcp_bth_mixed *mixed, __u32 rkey)
{
	tcp_bth_mixed_begin(mixed);
	tcp_bth_mixed_mark(mixed, rkey);
}

static inline void tcp_bth_targets_add(struct tcp_bth_mixed *mixed, __u32 length, __u64 va)
{
	tcp_bth_mixed_add(mixed, length);
	tcp_bth_mixed_mark(mixed, (__u32)(va >> 32));
	tcp_bth_mixed_mark(mixed, (__u32)va);
}

/* Of a table of targets that was read. */
static inline __u32 tcp_bth_targets_rkey(const __u32 *words) { return words[0]; }

static inline const __u32 *tcp_bth_target(const __u32 *words, __u32 i)
{
	return words + TCP_BTH_TARGETS_HEAD_WORDS + (size_t)i * TCP_BTH_TARGET_WORDS;
}

static inline __u32 tcp_bth_target_length(const __u32 *words, __u32 i)
{
	return tcp_bth_target(words, i)[0];
}

static inline __u64 tcp_bth_target_va(const __u32 *words, __u32 i)
{
	const __u32 *target = tcp_bth_target(words, i);

	return (__u64)target[1] << 32 | target[2];
}

/* As they are sent; @to: TCP_BTH_TARGETS_MAX_BYTES. */
static inline void tcp_bth_targets_put(__u8 *to, __u32 i, __u32 length, __u64 va)
{
	to += ((size_t)TCP_BTH_TARGETS_HEAD_WORDS + (size_t)i * TCP_BTH_TARGET_WORDS) * 4;
	tcp_bth_put32(to, length);
	tcp_bth_put32(to + 4, (__u32)(va >> 32));
	tcp_bth_put32(to + 8, (__u32)va);
}

/* Bytes of the table of so many. */
static inline __u32 tcp_bth_targets_bytes(__u32 messages)
{
	return 4 * (TCP_BTH_TARGETS_HEAD_WORDS + TCP_BTH_TARGET_WORDS * messages);
}

/**
 * tcp_bth_mixed_read() - read the @bytes of a LENGTHS message at @from.
 * @entries: room for TCP_BTH_MIXED_MAX_MESSAGES; may be @from itself
 *
 * False: no such table can be, and what @entries has means nothing.
 */
static inline bool tcp_bth_mixed_read(const __u8 *from, __u32 bytes, __u32 *entries,
				      struct tcp_bth_mixed *mixed)
{
	__u32 i, entry;

	tcp_bth_mixed_begin(mixed);
	if (!bytes || bytes % TCP_BTH_LENGTHS_ENTRY_BYTES || bytes > TCP_BTH_LENGTHS_MAX_BYTES)
		return false;
	for (i = 0; i < bytes / TCP_BTH_LENGTHS_ENTRY_BYTES; i++) {
		entry = tcp_bth_get32(from + (size_t)i * TCP_BTH_LENGTHS_ENTRY_BYTES);
		if (!tcp_bth_mixed_length(entry) ||
		    entry & ~(TCP_BTH_LENGTHS_SOLICITED | TCP_BTH_LENGTHS_LENGTH_MASK))
			return false;
		entries[i] = entry;
		tcp_bth_mixed_add(mixed, entry);
	}
	return true;
}

/**
 * tcp_bth_targets_read() - the same of a TARGETS message.
 * @words: room for TCP_BTH_TABLE_MAX_WORDS; may be @from itself
 */
static inline bool tcp_bth_targets_read(const __u8 *from, __u32 bytes, __u32 *words,
					struct tcp_bth_mixed *mixed)
{
	__u32 i, messages = bytes / 4 / TCP_BTH_TARGET_WORDS, length;

	tcp_bth_mixed_begin(mixed);
	if (!messages || messages > TCP_BTH_TARGETS_MAX_MESSAGES || bytes != tcp_bth_targets_bytes(messages))
		return false;
	for (i = 0; i < bytes / 4; i++)
		words[i] = tcp_bth_get32(from + (size_t)i * 4);
	tcp_bth_targets_begin(mixed, tcp_bth_targets_rkey(words));
	for (i = 0; i < messages; i++) {
		length = tcp_bth_target_length(words, i);
		if (!length || length & ~TCP_BTH_LENGTHS_LENGTH_MASK)
			return false;
		tcp_bth_targets_add(mixed, length, tcp_bth_target_va(words, i));
	}
	return true;
}

#ifdef __cplusplus
}
#endif
#endif
