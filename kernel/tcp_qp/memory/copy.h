/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Payload from an skb to a buffer, as copy_to_user() would have done it.
 *
 * memcpy() moves eight bytes at a time on every x86 processor without FSRM, also
 * where string instructions are made for long copies (ERMS).  recv() has the
 * better one, so the software engine takes it, too.
 */
#ifndef TQP_COPY_H
#define TQP_COPY_H

#include <linux/kasan-checks.h>
#include <linux/skbuff.h>
#include <linux/string.h>
#ifdef CONFIG_X86_64
#include <asm/cpufeature.h>
#endif

#define TQP_COPY_LONG_BYTES 1024	/* from here on a string instruction has paid its beginning */

static inline void tqp_copy_long(void *to, const void *from, size_t bytes)
{
#ifdef CONFIG_X86_64
	size_t words = bytes / sizeof(u64), rest = bytes % sizeof(u64);

	kasan_check_read(from, bytes);
	kasan_check_write(to, bytes);
	if (cpu_feature_enabled(X86_FEATURE_ERMS))
		asm volatile("rep movsb" : "+D" (to), "+S" (from), "+c" (bytes) : : "memory");
	else
		asm volatile("rep movsq\n\tmov %3, %%rcx\n\trep movsb"
			     : "+&D" (to), "+&S" (from), "+&c" (words) : "r" (rest) : "memory");
#else
	memcpy(to, from, bytes);
#endif
}

/* False: @skb has less. */
static inline bool tqp_copy_skb(struct sk_buff *skb, u32 off, void *to, u32 bytes)
{
	struct skb_seq_state state;
	const u8 *from;
	u32 n, done = 0;

	if (bytes < TQP_COPY_LONG_BYTES)
		return !skb_copy_bits(skb, off, to, bytes);
	if (off > skb->len || bytes > skb->len - off)
		return false;
	skb_prepare_seq_read(skb, off, off + bytes, &state);
	while (done < bytes) {
		n = min(skb_seq_read(done, &from, &state), bytes - done);
		if (!n)
			break;
		tqp_copy_long(to + done, from, n);
		done += n;
	}
	skb_abort_seq_read(&state);
	return done == bytes;
}

#endif
