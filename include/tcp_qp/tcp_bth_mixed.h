/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * The payload of LENGTHS: how long the messages of the mixed train are that begins
 * right behind it.
 *
 *   be32 for each message: bit 31 solicited, bits 30-24 zero, bits 23-0 length (not zero)
 *
 * Kernel and switch read the same bytes, each by itself, and must come to the
 * same messages: this is the one reader.
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
};
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

/* One more.  It tells tables apart that were not made to be alike, and no more. */
static inline void tcp_bth_mixed_add(struct tcp_bth_mixed *mixed, __u32 entry)
{
	__u32 mark = mixed->check ^ entry;

	mixed->messages++;
	mixed->bytes += tcp_bth_mixed_length(entry);
	mixed->check = (mark << 13 | mark >> 19) * 0x9e3779b1u;
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

#ifdef __cplusplus
}
#endif
#endif
