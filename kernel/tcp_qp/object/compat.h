/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that we build for: 6.12 (Debian 12 and 13)
 * and the newest that Debian serves (docs/kernels.md says which were tried).
 * selftests/vm/modules/catch_up has it, too.
 *
 * The code is written for the newest one.  This header gives older kernels the
 * newer names, or names the place where a call or a signature differs.  The
 * version at each is the one that brought the difference; "by 7.2" means that
 * 7.2 has it, and which kernel after 6.12 had it first has not been looked up.
 */
#ifndef TQP_COMPAT_H
#define TQP_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/version.h>
#include <net/tcp.h>

#define TQP_KERNEL_BEFORE(major, minor) (KERNEL_VERSION(major, minor, 0) > LINUX_VERSION_CODE)

/* 6.13: a timer gets its function together with its clock. */
#if TQP_KERNEL_BEFORE(6, 13)
#define hrtimer_setup(timer, call, clock, mode)          \
	do {                                             \
		hrtimer_init((timer), (clock), (mode));  \
		(timer)->function = (call);              \
	} while (0)
#endif

/* 6.15: the hook for acknowledged data is in struct tcp_sock, and its functions take that. */
#if TQP_KERNEL_BEFORE(6, 15)
#define tqp_clean_acked_sk(sk) inet_csk(sk)
#else
#define tqp_clean_acked_sk(sk) tcp_sk(sk)
#endif

/* 6.17: memory registration has DMA handles; we have no use for them. */
#if TQP_KERNEL_BEFORE(6, 17)
#define TQP_DMAH_PARAM
#define TQP_DMAH false
#else
#define TQP_DMAH_PARAM struct ib_dmah *dmah,
#define TQP_DMAH dmah
#endif

/* By 7.2: who asks what a ULP has to tell may be an ordinary user. */
#if TQP_KERNEL_BEFORE(7, 0)
#define TQP_ULP_INFO_PARAMS(...) __VA_ARGS__
#else
#define TQP_ULP_INFO_PARAMS(...) __VA_ARGS__, bool net_admin
#endif

/* 6.18: pages of one allocation are always neighbours in the memory map. */
#ifndef nth_page
#define nth_page(page, n) ((page) + (n))
#endif

/* 6.18: looking up a socket finds the hash table by the namespace alone. */
#if TQP_KERNEL_BEFORE(6, 18)
#define TQP_LOOKUP_ARGS(net) (net), (net)->ipv4.tcp_death_row.hashinfo
#else
#define TQP_LOOKUP_ARGS(net) (net)
#endif

/* 6.19: the kernel's own calls take socket addresses of any size by a type that says so. */
#if TQP_KERNEL_BEFORE(6, 19)
#define sockaddr_unsized sockaddr
#endif

/* By 7.2: struct msghdr alone has the address's length. */
#if TQP_KERNEL_BEFORE(7, 0)
#define TQP_RECV_FLAGS_PARAMS int flags, int *addr_len
#define TQP_RECV_FLAGS(flags) (flags), addr_len
#else
#define TQP_RECV_FLAGS_PARAMS int flags
#define TQP_RECV_FLAGS(flags) (flags)
#endif

/* By 7.2: TCP computes its checksum without asking the address family's operations. */
#if TQP_KERNEL_BEFORE(7, 0)
#define tqp_send_check(af, sk, skb) ((af)->send_check(sk, skb))
#else
#include <net/ip6_checksum.h>

static inline void tqp_send_check(const struct inet_connection_sock_af_ops *af,
				  const struct sock *sk, struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (af->net_header_len == sizeof(struct ipv6hdr)) {
		__tcp_v6_send_check(skb, &sk->sk_v6_rcv_saddr, &sk->sk_v6_daddr);
		return;
	}
#endif
	__tcp_v4_send_check(skb, inet_sk(sk)->inet_saddr, inet_sk(sk)->inet_daddr);
}
#endif

/* By 7.2: user memory is pinned by address or by descriptor, each with a function of its own. */
#if TQP_KERNEL_BEFORE(7, 0)
#define ib_umem_get_va ib_umem_get
#endif

/* By 7.2: only user space's completion queues are resized, and the number has no sign. */
#if TQP_KERNEL_BEFORE(7, 0)
#define resize_user_cq resize_cq
#define TQP_CQE_TYPE int
#else
#define TQP_CQE_TYPE unsigned int
#endif

/* By 7.3: an importer's callback says what it has to do, not why. */
#if TQP_KERNEL_BEFORE(7, 0)
#define invalidate_mappings move_notify
#endif

/* 7.3: the offset in the iterator's current piece has another name. */
#if TQP_KERNEL_BEFORE(7, 3)
#define bi_offset bi_bvec_done
#endif

#endif
