// SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause
/*
 * tcp_bth on the segments of a stock kernel's TCP.
 *
 *   opt_in   cgroup/setsockopt: a connection that the helper admitted starts
 *   segment  sockops: room for the option, the option, and the peer's options
 *   unsack   tc egress: where TCP's SACK took the room, ours takes its place,
 *            as tcp_qp.ko does; pure ACKs keep SACK
 *
 * Who is admitted has an entry in sockets, which only the helper writes: the
 * number of its slot, and a generation that no other admission ever has.  The
 * slot is the socket's as long as its generation is the slot's, and the entry
 * goes when the connection is over, so that no other can come to it by the socket.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <tcp_qp/tcp_bth.h>
#include <tcp_qp/tcp_bth_option.h>
#include <tcp_qp/tcp_qp.h>

#include "base/bpf_abi.h"

#ifndef SOL_TCP
#define SOL_TCP 6
#endif
enum {
	SOCK_OPS_CB_FLAGS = 1008,	/* TCP_BPF_SOCK_OPS_CB_FLAGS, Linux 6.12 */
	SEGMENT_FLAGS = BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
			BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG,
	OPTIONS_MAX = 40,
	SACK_KIND = 5,
	TIMESTAMP_BYTES = 12,		/* NOP NOP and the option, as Linux writes it */
	NOTHING_READ_BYTES = 1 << 30,
	SEARCH_STEPS = 13,		/* for TCPQP_BPF_TX_ENTRIES */
	SEARCHES = 4,			/* of one message, while others are retired */
	WAKEUP_BYTES = 4096,		/* one record at a time is in it */
	CLOSED_BYTES = 32 * TCPQP_BPF_SLOTS_MAX,	/* a ring's entry: header, and which it was */
};

/* The helper sets it to the module's number_port, if there is a module. */
const volatile __u16 number_port SEC(".rodata.number_port") = TCP_QP_NUMBER_PORT;

struct slot_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct tcpqp_bpf_slot));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, TCPQP_BPF_SLOTS_MAX);
	__type(key, __u32);
	__array(values, struct slot_map);
} slots SEC(".maps");

struct wakeup_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, WAKEUP_BYTES);
};

/* What wakes a slot's library, by the same number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, TCPQP_BPF_SLOTS_MAX);
	__type(key, __u32);
	__array(values, struct wakeup_ring);
} wakeups SEC(".maps");

/* Whose each slot is: the generation of an admission, or 0.  No user's memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, TCPQP_BPF_SLOTS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tcpqp_bpf_admitted);
} sockets SEC(".maps");

/* Admissions that are over: each once, and the helper always reads, so there is room for all. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, CLOSED_BYTES);
} closed SEC(".maps");

#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))

/*
 * Nothing, if the slot is not the admission's any more.  Between the look at its
 * owner and the last use of its memory there is no change to another's: the helper
 * takes the owner away first, and then waits for all programs that run.
 */
static __always_inline struct tcpqp_bpf_slot *slot_of(const struct tcpqp_bpf_admitted *a)
{
	__u64 *owner = bpf_map_lookup_elem(&owners, &a->slot);
	__u32 zero = 0;
	void *map;

	if (!owner || READ_ONCE(*owner) != a->generation)
		return NULL;
	map = bpf_map_lookup_elem(&slots, &a->slot);
	return map ? bpf_map_lookup_elem(map, &zero) : NULL;
}

static __always_inline bool seq_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

static __always_inline __u32 stream_bytes(__u32 length)
{
	return length ? length : 1;
}

/* ---- what we send ---- */

/*
 * Is @seq in the message of @index?  Its description is copied once, and holds only if
 * it was not retired before: who retires says so first, and then may write it anew.
 */
static __always_inline bool holds(struct tcpqp_bpf_slot *slot, __u32 index, __u32 seq,
				  struct tcpqp_bpf_message *to)
{
	*to = *(const volatile struct tcpqp_bpf_message *)&slot->tx[index % TCPQP_BPF_TX_ENTRIES];
	return seq - to->seq < stream_bytes(to->length) &&
	       !seq_before(index, __sync_fetch_and_add(&slot->tx_first, 0));
}

/* The message among those from @first to @next that holds @seq. */
static __always_inline bool search(struct tcpqp_bpf_slot *slot, __u32 first, __u32 next, __u32 seq,
				   struct tcpqp_bpf_message *to)
{
	__u32 lo = 0, hi = next - first;

	if (!hi || hi > TCPQP_BPF_TX_ENTRIES)
		return false;
	for (int i = 0; i < SEARCH_STEPS && hi - lo > 1; i++) {
		__u32 mid = lo + (hi - lo) / 2;
		__u32 at = READ_ONCE(slot->tx[(first + mid) % TCPQP_BPF_TX_ENTRIES].seq);

		if (seq_before(seq, at))
			hi = mid;
		else
			lo = mid;
	}
	if (!holds(slot, first + lo, seq, to))
		return false;
	WRITE_ONCE(slot->tx_found, first + lo);
	return true;
}

/* What was sent last, or what follows it: mostly it is one of these. */
static __always_inline bool look(struct tcpqp_bpf_slot *slot, __u32 first, __u32 next, __u32 seq,
				 struct tcpqp_bpf_message *to)
{
	__u32 found = READ_ONCE(slot->tx_found);

	if (found - first < next - first && holds(slot, found, seq, to))
		return true;
	found++;
	if (found - first >= next - first || !holds(slot, found, seq, to))
		return false;
	WRITE_ONCE(slot->tx_found, found);
	return true;
}

/*
 * Entries may be retired, and written anew, under a search, but not the one that is
 * looked for: TCP still sends it.  It was there before tx_next was read.
 */
static __always_inline bool find_message(struct tcpqp_bpf_slot *slot, __u32 seq,
					 struct tcpqp_bpf_message *to)
{
	__u32 next = __sync_fetch_and_add(&slot->tx_next, 0);

	for (int i = 0; i < SEARCHES; i++) {
		__u32 first = READ_ONCE(slot->tx_first);

		if (look(slot, first, next, seq, to) || search(slot, first, next, seq, to))
			return true;
		if (first == __sync_fetch_and_add(&slot->tx_first, 0))
			return false;
	}
	return false;
}

/* The option's bytes at @opt, which has OPTIONS_MAX of them. */
static __always_inline __u32 build(const struct tcpqp_bpf_message *m, __u8 *opt)
{
	bool imm = m->opcode == TCP_BTH_OP_SEND_ONLY_IMM || m->opcode == TCP_BTH_OP_ACKNOWLEDGE;

	opt[0] = TCP_BTH_KIND;
	opt[1] = imm ? TCP_BTH_OPT_MIN_BYTES + TCP_BTH_EXT4_BYTES : TCP_BTH_OPT_MIN_BYTES;
	tcp_bth_put16(opt + 2, TCP_BTH_EXID);
	opt[4] = 1 | (m->flags & TCPQP_BPF_MESSAGE_FLAGS);
	opt[5] = m->opcode;
	tcp_bth_put16(opt + 6, m->msn);
	tcp_bth_put32(opt + 8, m->seq);
	tcp_bth_put32(opt + 12, m->length);
	if (imm)
		tcp_bth_put32(opt + 16, m->ext4);
	return opt[1];
}

/*
 * As much as there is: where SACK leaves less, what both have is enough for
 * unsack().  The MSS is computed with skb_len 0, and must count it too.
 */
static __always_inline void reserve(struct bpf_sock_ops *ops)
{
	if (ops->args[0] != BPF_WRITE_HDR_TCP_CURRENT_MSS && !ops->skb_len)
		return;
#pragma unroll
	for (int bytes = TCPQP_BPF_OPTION_BYTES; bytes > 0; bytes -= 4)
		if (!bpf_reserve_hdr_opt(ops, bytes, 0))
			return;
}

/* What TCP itself has written of options is there already. */
static __always_inline bool has_sack(struct bpf_sock_ops *ops)
{
	__u8 sack[OPTIONS_MAX] = {SACK_KIND};

	return bpf_load_hdr_opt(ops, sack, sizeof(sack), 0) > 0;
}

static __always_inline void write_option(struct bpf_sock_ops *ops, struct tcpqp_bpf_slot *slot)
{
	struct tcphdr *th = ops->skb_data;
	struct tcpqp_bpf_message m;
	__u8 opt[OPTIONS_MAX] = {};

	if ((void *)(th + 1) > ops->skb_data_end || ops->skb_len <= th->doff * 4)
		return;
	if (!find_message(slot, bpf_ntohl(th->seq), &m))
		return;		/* plain bytes, before the first message */
	if (!bpf_store_hdr_opt(ops, opt, build(&m, opt), 0))
		WRITE_ONCE(slot->tx_written, slot->tx_written + 1);
	else if (!has_sack(ops))	/* else it has the place of that: unsack() counts */
		WRITE_ONCE(slot->tx_bare, slot->tx_bare + 1);
}

/* ---- who waits ---- */

/*
 * After the change that is told of.  The exchange is a full barrier, as is the
 * library's between awaits and its last look: one of both sees the other's.
 */
static __always_inline void tell(struct tcpqp_bpf_slot *slot, __u32 index)
{
	__u32 awaited = __sync_lock_test_and_set(&slot->awaits, 0);
	void *ring = awaited ? bpf_map_lookup_elem(&wakeups, &index) : NULL;

	if (ring)
		bpf_ringbuf_output(ring, &awaited, sizeof(awaited), BPF_RB_FORCE_WAKEUP);
}

/*
 * TCP takes the ACK a little later, under the same lock, which the library takes
 * before it looks.  Pure ACKs without an unknown option don't come by here, nor
 * by any other callback: BPF_SOCK_OPS_RTT_CB is called once in a round trip, and
 * not for the ACK of the last byte that was under way.
 */
static __always_inline void tell_ack(const struct bpf_sock_ops *ops, struct tcpqp_bpf_slot *slot,
				     __u32 index, __u32 ack)
{
	if (READ_ONCE(slot->awaits) & TCPQP_BPF_AWAITS_ACK && seq_before(ops->snd_una, ack))
		tell(slot, index);
}

/* ---- what the peer sends ---- */

static __always_inline bool is_live(const struct tcpqp_bpf_slot *slot, const struct tcpqp_bpf_message *m)
{
	return seq_before(READ_ONCE(slot->rx_seq), m->seq + stream_bytes(m->length));
}

static __always_inline bool is_same(const struct tcpqp_bpf_message *a, const struct tcpqp_bpf_message *b)
{
	return a->seq == b->seq && a->length == b->length && a->opcode == b->opcode && a->ext4 == b->ext4;
}

/*
 * Again and again for a message's segments: the same each time, or the peer lies.
 * rx_seq is looked at last, as its line is mostly the reader's CPU's.
 */
static __always_inline void record(struct tcpqp_bpf_slot *slot, struct tcpqp_bpf_boundary *at,
				   const struct tcpqp_bpf_message *m)
{
	__u32 tag = TCPQP_BPF_TAG_VALID | m->msn;

	if ((at->tag == tag && is_same(&at->message, m)) || !is_live(slot, m))
		return;
	if (at->tag & TCPQP_BPF_TAG_VALID && is_live(slot, &at->message)) {
		WRITE_ONCE(slot->rx_lost, slot->rx_lost + 1);
		return;
	}
	at->message = *m;
	__sync_lock_test_and_set(&at->tag, tag);	/* the reader looks at it first */
}

static __always_inline void hints(struct tcpqp_bpf_slot *slot, __u32 index, const struct tcp_bth *b)
{
	__u32 flags = b->flags & (TCP_BTH_F_RTR | TCP_BTH_F_RTR_ACK);
	bool more = false;

	if (b->opcode == TCP_BTH_OP_ACKNOWLEDGE && b->ext_bytes == TCP_BTH_EXT4_BYTES &&
	    (!slot->peer_limit_known || (__s16)(b->ext4 - slot->peer_limit) > 0)) {
		WRITE_ONCE(slot->peer_limit, (__u16)b->ext4);
		WRITE_ONCE(slot->peer_limit_known, 1);
		more = true;
	}
	if (flags & ~READ_ONCE(slot->peer_flags)) {
		__sync_fetch_and_or(&slot->peer_flags, flags);
		more = true;
	}
	if (more)
		tell(slot, index);
}

static __always_inline void received(struct tcpqp_bpf_slot *slot, const struct tcp_bth *b)
{
	struct tcpqp_bpf_message m = {
		.seq = b->start_seq,
		.length = b->length,
		.ext4 = b->ext4,
		.msn = b->msn,
		.opcode = b->opcode,
		.flags = b->flags,
	};
	bool ext4 = b->ext_bytes == TCP_BTH_EXT4_BYTES;

	if (b->ver == 1 && ((b->opcode == TCP_BTH_OP_SEND_ONLY && !b->ext_bytes) ||
			    (b->opcode == TCP_BTH_OP_SEND_ONLY_IMM && ext4))) {
		record(slot, &slot->rx[b->msn % TCPQP_BPF_RX_ENTRIES], &m);
	} else if (b->ver == 1 && b->opcode == TCP_BTH_OP_ACKNOWLEDGE && ext4) {
		record(slot, &slot->control[b->msn % TCPQP_BPF_CONTROL_ENTRIES], &m);
		WRITE_ONCE(slot->peer_is_stock, 1);
	} else if (b->ver == 1 && b->opcode == TCP_BTH_OP_TERMINATE &&
		   b->length == TCP_BTH_TERMINATE_BYTES) {
		record(slot, &slot->terminate, &m);
	} else if (!(slot->refused.tag & TCPQP_BPF_TAG_VALID) ||
		   seq_before(m.seq, slot->refused.message.seq)) {
		slot->refused.message = m;
		__sync_lock_test_and_set(&slot->refused.tag, TCPQP_BPF_TAG_VALID);
	}
}

/* TCP has checked the sequence number, and not yet the ACK. */
static __always_inline void parse(struct bpf_sock_ops *ops, struct tcpqp_bpf_slot *slot, __u32 index)
{
	__u8 opt[OPTIONS_MAX] = {TCP_BTH_KIND, TCP_BTH_HEAD_BYTES, TCP_BTH_EXID >> 8,
				 TCP_BTH_EXID & 0xff};
	struct tcphdr *th = ops->skb_data;
	struct tcp_bth b = {};
	__u32 payload;

	if (bpf_load_hdr_opt(ops, opt, sizeof(opt), 0) < 0)
		return;
	if ((void *)(th + 1) > ops->skb_data_end || ops->skb_len < th->doff * 4)
		return;
	payload = ops->skb_len - th->doff * 4;
	if (seq_before(ops->snd_nxt, bpf_ntohl(th->ack_seq)) ||
	    tcp_bth_parse(opt, sizeof(opt), bpf_ntohl(th->seq), payload, &b)) {
		WRITE_ONCE(slot->rx_invalid, slot->rx_invalid + 1);
		return;
	}
	if (payload)
		received(slot, &b);
	hints(slot, index, &b);	/* who sees rtr sees the message that bore it */
	tell_ack(ops, slot, index, bpf_ntohl(th->ack_seq));
}

/*
 * connect(AF_UNSPEC) comes by here, too: what the socket is used for next is
 * nothing that was admitted.
 */
static __always_inline void end(struct bpf_sock *sk, const struct tcpqp_bpf_admitted *a)
{
	struct tcpqp_bpf_admitted over = *a;

	bpf_sk_storage_delete(&sockets, sk);
	bpf_ringbuf_output(&closed, &over, sizeof(over), 0);
}

SEC("sockops")
int segment(struct bpf_sock_ops *ops)
{
	struct tcpqp_bpf_admitted *a;
	struct bpf_sock *sk = ops->sk;
	struct tcpqp_bpf_slot *slot;

	if (!sk)
		return 1;
	a = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (!a)
		return 1;
	if (ops->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB) {
		reserve(ops);
		return 1;
	}
	if (ops->op == BPF_SOCK_OPS_STATE_CB) {
		if (ops->args[1] == BPF_TCP_CLOSE)
			end(sk, a);
		return 1;
	}
	slot = slot_of(a);
	if (!slot)
		return 1;
	switch (ops->op) {
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write_option(ops, slot);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		parse(ops, slot, a->slot);
		break;
	}
	return 1;
}

static __always_inline bool is_connected(const struct bpf_sock *sk)
{
	return sk->state == BPF_TCP_ESTABLISHED || sk->state == BPF_TCP_CLOSE_WAIT;
}

/*
 * Modules at either end connect QPs by number there, and take who speaks tcp_bth on such a
 * connection for the other host's module.
 */
static __always_inline bool is_reserved(const struct bpf_sock *sk)
{
	return number_port &&
	       (sk->src_port == number_port || bpf_ntohs(sk->dst_port) == number_port);
}

/* Under the socket's lock: a connection is over before it starts, or its end is seen. */
SEC("cgroup/setsockopt")
int opt_in(struct bpf_sockopt *ctx)
{
	struct tcpqp_bpf_admitted *a;
	struct tcpqp_bpf_slot *slot;
	struct bpf_tcp_sock *tp;
	int flags = 0;

	if (ctx->level != TCPQP_BPF_SOCKOPT || !ctx->sk)
		return 1;
	a = bpf_sk_storage_get(&sockets, ctx->sk, NULL, 0);
	slot = a ? slot_of(a) : NULL;
	tp = slot ? bpf_tcp_sock(ctx->sk) : NULL;
	if (!tp)
		return 1;	/* the kernel knows no such level */
	if (ctx->optname != TCPQP_BPF_STOP && (!is_connected(ctx->sk) || is_reserved(ctx->sk)))
		return 0;
	bpf_getsockopt(ctx->sk, SOL_TCP, SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	flags = ctx->optname == TCPQP_BPF_STOP ? flags & ~SEGMENT_FLAGS :
						flags | SEGMENT_FLAGS | BPF_SOCK_OPS_STATE_CB_FLAG;
	if (bpf_setsockopt(ctx->sk, SOL_TCP, SOCK_OPS_CB_FLAGS, &flags, sizeof(flags)))
		return 0;
	WRITE_ONCE(slot->rx_seq, tp->rcv_nxt - NOTHING_READ_BYTES);	/* the library knows better, soon */
	WRITE_ONCE(slot->snd_nxt, tp->snd_nxt);
	WRITE_ONCE(slot->rcv_nxt, tp->rcv_nxt);
	ctx->optlen = -1;	/* done here */
	return 1;
}

/* ---- SACK in the way ---- */

/* Offset of the TCP header from the network header, or 0. */
static __always_inline __u32 tcp_at(struct __sk_buff *skb)
{
	struct ipv6hdr six;
	struct iphdr four;

	if (skb->protocol == bpf_htons(ETH_P_IP) &&
	    !bpf_skb_load_bytes_relative(skb, 0, &four, sizeof(four), BPF_HDR_START_NET))
		return four.protocol == IPPROTO_TCP ? four.ihl * 4 : 0;
	if (skb->protocol == bpf_htons(ETH_P_IPV6) &&
	    !bpf_skb_load_bytes_relative(skb, 0, &six, sizeof(six), BPF_HDR_START_NET))
		return six.nexthdr == IPPROTO_TCP ? sizeof(six) : 0;
	return 0;
}

static __always_inline bool has_timestamps(const __u8 *opts)
{
	return opts[0] == 1 && opts[1] == 1 && opts[2] == 8 && opts[3] == 10;
}

/* Bytes of the checksum need no care: it is computed after us, always. */
static __always_inline void replace(struct __sk_buff *skb, struct tcpqp_bpf_slot *slot, __u32 at,
				    __u32 room, __u32 seq)
{
	struct tcpqp_bpf_message m;
	__u8 opt[OPTIONS_MAX];

	if (!find_message(slot, seq, &m))
		return;
	__builtin_memset(opt, 1, sizeof(opt));
	if (room < TCPQP_BPF_OPTION_BYTES || room > OPTIONS_MAX || build(&m, opt) > room ||
	    bpf_skb_store_bytes(skb, at, opt, room, 0)) {
		WRITE_ONCE(slot->tx_bare, slot->tx_bare + 1);
		return;
	}
	WRITE_ONCE(slot->tx_rewritten, slot->tx_rewritten + 1);
}

SEC("tc")
int unsack(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct tcpqp_bpf_admitted *a;
	struct tcpqp_bpf_slot *slot;
	__u8 opts[OPTIONS_MAX] = {};
	struct tcphdr th;
	__u32 at, room, stamps;

	sk = sk ? bpf_sk_fullsock(sk) : NULL;
	a = sk ? bpf_sk_storage_get(&sockets, sk, NULL, 0) : NULL;
	slot = a ? slot_of(a) : NULL;
	if (!slot)
		return TC_ACT_UNSPEC;
	at = tcp_at(skb);
	if (!at || bpf_skb_load_bytes_relative(skb, at, &th, sizeof(th), BPF_HDR_START_NET) ||
	    th.doff * 4 <= sizeof(th) || skb->len <= ETH_HLEN + at + th.doff * 4)
		return TC_ACT_UNSPEC;
	room = th.doff * 4 - sizeof(th);
	if (room < 4 || room > OPTIONS_MAX ||
	    bpf_skb_load_bytes_relative(skb, at + sizeof(th), opts, room, BPF_HDR_START_NET))
		return TC_ACT_UNSPEC;
	stamps = has_timestamps(opts) ? TIMESTAMP_BYTES : 0;
	if (room < stamps + 4 || opts[stamps + 2] != SACK_KIND)	/* after NOP NOP */
		return TC_ACT_UNSPEC;
	replace(skb, slot, ETH_HLEN + at + sizeof(th) + stamps, room - stamps, bpf_ntohl(th.seq));
	return TC_ACT_UNSPEC;
}

/* ---- whose memory is still held ---- */

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_map {
	__u32 id;
} __attribute__((preserve_access_index));

struct bpf_iter__bpf_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
} __attribute__((preserve_access_index));

/* Reads as the numbers of all maps: a user may keep one when its connection is over. */
SEC("iter/bpf_map")
int maps(struct bpf_iter__bpf_map *ctx)
{
	struct bpf_map *map = ctx->map;
	__u32 id;

	if (!map)
		return 0;
	id = map->id;
	bpf_seq_write(ctx->meta->seq, &id, sizeof(id));
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
