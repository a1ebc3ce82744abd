/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ULP "tcp_qp_stream": a TCP socket as it is, that sends from large pages.
 *
 * No queue pair, and nothing on the wire: any peer, any NIC.  TCP's own
 * functions do everything; what differs is into which pages a large send is copied.
 */
#ifndef TQP_STREAM_H
#define TQP_STREAM_H

#include <linux/tcp.h>
#include <net/tcp.h>
#include "tcp_qp/tcp_qp.h"

enum {
	TQP_STREAM_SEND_MIN_BYTES = 32 << 10,	/* of one send; below it TCP's own pages do as well */
	TQP_STREAM_BULK_BYTES = 256 << 10,	/* acknowledged, before a socket gets pages */
	TQP_STREAM_ROOM_MIN_BYTES = 4 << 10,	/* of a page that is begun */
	TQP_STREAM_PAGES_MAX = 16,
	TQP_STREAM_BYTES_MAX = 8 << 20,		/* of a socket's pages: what is sent stays in the cache */
	TQP_STREAM_SMALL_ORDER = 6,
	TQP_STREAM_LARGE_ORDER = 8,
	TQP_STREAM_BEGIN_BYTES = PAGE_SIZE,	/* of a large page that are left out */
	TQP_STREAM_LARGE_SEND_BYTES = 512 << 10,	/* from here on a send is worth the large order */
	TQP_STREAM_BACKLOG_BYTES = 1 << 20,	/* of a send, between looks at what came: sixteen segments, as TCP */
	TQP_STREAM_RAM_SHARE = 16,		/* all sockets' pages: at most this part of the machine's memory */
	TQP_STREAM_HELD_BITS = 8,		/* buckets of sockets that have another ULP now */
	TQP_STREAM_IDLE_MS = 1000,		/* pages nobody sent from for as long go back */
};

struct tqp_place;

/* How fast a reader is (window.c).  Lock: sk lock. */
struct tqp_reading {
	s64 per_rtt;			/* bytes that are read in a round trip */
	u64 at;				/* ns; what was read since is not counted there yet; 0: nothing is */
	u32 seq;			/* the first byte of that */
	u8 calls;			/* that were counted, up to TQP_WINDOW_CALLS */
};

/*
 * A socket's pages, from its first bulk on.  Each is held by us, by sk_frag while
 * TCP copies into it, and by the packets that have bytes of it.  Lock: sk lock.
 */
struct tqp_stream {
	struct rcu_head rcu;
	struct sock *sk;		/* list lock; NULL: it has ended, and others hold pages of it */
	struct list_head node;		/* of those that have pages; list lock */
	struct page *pages[TQP_STREAM_PAGES_MAX];
	struct page *loaded;		/* the one that sk_frag was given last; of ours */
	u32 nr_pages;
	u32 last;			/* where the search for a free one begins */
	u32 bytes;			/* of all pages */
	bool used;			/* since somebody looked whether it is idle */
	unsigned long retry_at;		/* jiffies; 0: allocation did not fail */
	u64 large_bytes;
	u64 other_bytes;
	u64 posts, placed_bytes, rescued_bytes;
	struct tqp_place *place;	/* place.h */
	struct tqp_reading reading;	/* while much waits (queue.c) */
	void (*data_ready)(struct sock *sk);	/* the socket's own, while edge.c has its place */
	unsigned long place_retry_at;	/* jiffies; 0: none was refused */
};

/* ---- ulp.c ---- */
extern struct tcp_ulp_ops tqp_stream_ulp_ops;
/* TCP's operations for ours; any other @prot as it is. */
struct proto *tqp_stream_base(const struct proto *prot);
/* A socket that nobody but its maker has yet; any context.  -EINVAL: it is another. */
int tqp_stream_install_new(struct sock *sk);
int tqp_stream_init(void);
void tqp_stream_exit(void);

/* Not another's, or none's.  Without the sk lock only a hint. */
static inline bool tqp_stream_is_on(const struct sock *sk)
{
	return READ_ONCE(inet_csk(sk)->icsk_ulp_ops) == &tqp_stream_ulp_ops;
}

/* The socket's pages; NULL: it has none, or another ULP.  sk lock. */
static inline struct tqp_stream *tqp_stream_of(const struct sock *sk)
{
	return tqp_stream_is_on(sk) ? (__force struct tqp_stream *)inet_csk(sk)->icsk_ulp_data : NULL;
}

/* The same; one is made for a socket of ours that has none.  NULL: no memory, or another ULP. */
struct tqp_stream *tqp_stream_made(struct sock *sk);

/*
 * The same without the lock; rcu_read_lock().  What the ULP's data is, is known once the ULP was
 * looked at after it: the barrier pairs with smp_store_release() in tqp_stream_yield().
 */
static inline const struct tqp_stream *tqp_stream_rcu(const struct sock *sk)
{
	const struct inet_connection_sock *icsk = inet_csk(sk);
	const struct tqp_stream *stream;

	stream = (__force const struct tqp_stream *)rcu_dereference(icsk->icsk_ulp_data);
	smp_rmb();	/* see above */
	return READ_ONCE(icsk->icsk_ulp_ops) == &tqp_stream_ulp_ops ? stream : NULL;
}

/* ---- send.c ---- */
int tqp_stream_sendmsg(struct sock *sk, struct msghdr *msg, size_t size);

/* ---- pages.c ---- */
void tqp_stream_destroy(struct tqp_stream *stream);	/* RCU readers may still look at it */
/* Makes sk_frag a page of ours; bytes of room there, 0: none is to be had. */
u32 tqp_stream_load(struct tqp_stream *stream, size_t want);
void tqp_stream_pages_exit(void);

/* ---- flush.c ---- */
/* Has the kernel free what packets it set aside, on all CPUs, soon.  May sleep. */
void tqp_stream_flush(void);
int tqp_stream_flush_init(void);
void tqp_stream_flush_exit(void);

/* ---- kfunc.c ---- */
struct bpf_sock;
int tqp_stream_kfunc(struct bpf_sock *ctx);	/* BPF's: its context is a struct sock */
void tqp_stream_kfunc_init(void);

#endif
