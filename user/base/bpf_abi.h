/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * What libtcpqp's stock engine, the helper tcpqp-bpf and its BPF program share.
 *
 * The helper gives each connection an array map of one value, struct
 * tcpqp_bpf_slot, which the library maps.  Both the library (hostile, as any
 * user) and the program write it: the program believes nothing in it, masks
 * each index, and a forged entry harms its own connection alone.
 *
 * With it comes a BPF ring, whose descriptor is readable when something came
 * that the library waits for.  It sets awaits, and looks once more; the program
 * clears awaits and puts one record into the ring.  So nothing is written while
 * nobody waits, and the ring never fills.  What the record says does not matter.
 *
 * Sequence numbers are TCP's, in host order.
 */
#ifndef TCPQP_BPF_SHARED_H
#define TCPQP_BPF_SHARED_H

#include <linux/types.h>
#include <tcp_qp/tcp_bth.h>

#define TCPQP_BPF_SOCKET_PATH "/run/tcpqp-bpf.sock"	/* SOCK_SEQPACKET; TCPQP_BPF_SOCKET overrides */

enum {
	TCPQP_BPF_ABI = 4,
	TCPQP_BPF_SOCKOPT = 0x5150,	/* setsockopt() level, for admitted connections; options: */
	TCPQP_BPF_START = 1,		/* options from now on; again: snd_nxt and rcv_nxt are written anew */
	TCPQP_BPF_STOP = 2,		/* none any more: the ends agreed on frames in the stream */
	TCPQP_BPF_TX_ENTRIES = 4096,	/* messages that TCP may still (re)transmit */
	TCPQP_BPF_RX_ENTRIES = 4096,	/* messages that arrived and were not read */
	TCPQP_BPF_CONTROL_ENTRIES = 1024,	/* ACKNOWLEDGE messages that were not read */
	TCPQP_BPF_SLOTS_MAX = 1024,	/* connections at a time */
	TCPQP_BPF_OPTION_BYTES = 20,	/* reserved on each data segment: ver 1 with 4 bytes of extension */
	TCPQP_BPF_MESSAGE_FLAGS = TCP_BTH_F_MORE | TCP_BTH_F_RTR | TCP_BTH_F_RTR_ACK | TCP_BTH_F_SOLICITED,
	TCPQP_BPF_TAG_VALID = 1 << 16,	/* of tag; bits 0-15 are the msn */
	TCPQP_BPF_AWAITS_PEER = 1,	/* more in peer_flags or peer_limit */
	TCPQP_BPF_AWAITS_ACK = 2,	/* a segment with options that acknowledges more; TCP takes it after the wakeup */
};

/* One message, as tcp_bth ver 1 says it. */
struct tcpqp_bpf_message {
	__u32 seq;		/* of its first byte */
	__u32 length;		/* bytes; a message of none takes one byte of the stream */
	__u32 ext4;
	__u16 msn;
	__u8 opcode;
	__u8 flags;		/* TCP_BTH_F_* */
};

struct tcpqp_bpf_boundary {
	struct tcpqp_bpf_message message;
	__u32 tag;		/* written last */
	__u32 reserved[3];
};

struct tcpqp_bpf_slot {
	/* the library's */
	__u32 tx_first;		/* free-running: oldest entry of tx[] still needed */
	__u32 tx_next;
	__u32 rx_seq;		/* all before it was read */
	__u32 awaits;		/* TCPQP_BPF_AWAITS_*; the program takes it */
	__u32 reserved_library[12];

	/* the program's */
	__u32 snd_nxt;		/* when the connection started */
	__u32 rcv_nxt;
	__u32 peer_flags;	/* TCP_BTH_F_RTR, TCP_BTH_F_RTR_ACK that came */
	__u32 peer_limit;	/* first msn without a receive */
	__u32 peer_limit_known;
	__u32 tx_written;	/* data packets with the option, a burst counts once */
	__u32 tx_rewritten;	/* of these, where it took the place of SACK */
	__u32 tx_bare;		/* data packets that left without */
	__u32 rx_invalid;	/* options that make no sense, or on implausible segments */
	__u32 rx_lost;		/* boundaries there was no room for */
	__u32 peer_is_stock;	/* an ACKNOWLEDGE came as a message; set before the rtr it bore */
	__u32 tx_found;		/* of tx[], free-running: which was looked for last */
	__u32 reserved_program[4];

	struct tcpqp_bpf_boundary terminate;
	struct tcpqp_bpf_boundary refused;	/* the first message of a kind that a stock end does not take */
	struct tcpqp_bpf_boundary control[TCPQP_BPF_CONTROL_ENTRIES];	/* ACKNOWLEDGE, by msn */
	struct tcpqp_bpf_boundary rx[TCPQP_BPF_RX_ENTRIES];		/* SENDs, by msn */
	struct tcpqp_bpf_message tx[TCPQP_BPF_TX_ENTRIES];
};

/* What the helper and its program know of an admitted socket; no user sees it. */
struct tcpqp_bpf_admitted {
	__u64 generation;	/* from 1, and never given twice */
	__u32 slot;
	__u32 reserved;
};

/* Library to helper, with the TCP socket as SCM_RIGHTS. */
struct tcpqp_bpf_request {
	__u32 abi;
	__u32 reserved;
};

/* Helper to library; with error 0 the slot's map and its ring come as SCM_RIGHTS. */
struct tcpqp_bpf_reply {
	__u32 abi;
	__s32 error;		/* negative errno */
};

#endif
