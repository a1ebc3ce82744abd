// SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause
/*
 * Loses 5 % of the packets that arrive.  At ingress, where TCP's sender does not
 * hear of it; the same packets in the same order are lost each time.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

enum { LOST_OF_1000 = 50 };

static __u64 state = 0x9e3779b97f4a7c15;

SEC("tc")
int lose(struct __sk_buff *skb __attribute__((unused)))
{
	__u64 x = state;	/* xorshift64 */

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	state = x;
	return (x >> 20) % 1000 < LOST_OF_1000 ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
