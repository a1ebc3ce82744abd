/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Receiving without a copy: a reader that waits for much posts its own memory, and the
 * switch writes each byte of the stream where it belongs there (docs/sockets.md).
 *
 *   place.c   a socket's context in the switch, from the first such reader to its end
 *   reg.c     readers' memory, pinned
 *   regs.c    which of it is kept from one post to the next
 *   post.c    one reader's post: opened, taken back, and what is left of it
 *   window.c  how much may wait in TCP's queue meanwhile
 *   queue.c   the same where nobody posts, and the reader is late
 *   edge.c    how far the peer may send while a post is open
 *   recv.c    recvmsg
 *   part.c    between two parts of that
 *   peek.c    recvmsg with MSG_PEEK
 *   splice.c  splice()
 *   zerocopy.c  getsockopt, for TCP_ZEROCOPY_RECEIVE
 *
 * A placed packet has no bytes (zero pages) and is marked as unreadable, so TCP's own
 * recvmsg stops before it.  Where its bytes are says its sequence number: in the memory
 * that is posted, or, of a post that was taken back before TCP had them all, in what was
 * rescued from there.
 */
#ifndef TQP_STREAM_PLACE_H
#define TQP_STREAM_PLACE_H

#include <linux/refcount.h>
#include <linux/workqueue.h>
#include <tqp_offload.h>
#include "stream/reg.h"
#include "stream/stream.h"

enum {
	TQP_PLACE_MIN_BYTES = 256 << 10,	/* that a reader still waits for */
	TQP_PLACE_BULK_BYTES = 1 << 20,		/* received, before a socket gets a context */
	TQP_PLACES_MAX = 1024,			/* sockets of all users: they take NICs' contexts */
	TQP_PLACE_POST_BYTES = 4 << 20,		/* a power of 2: of a longer call's memory each part is a post */
	TQP_PLACE_PAGES_MAX = (TQP_PLACE_POST_BYTES >> 12) + 1,
	TQP_PLACE_SETTLE_MS = 20,		/* for what was placed to come through TCP */
	TQP_PLACE_MISSES_MAX = 6,		/* after as many a reader in 64 is tried */
	TQP_PLACE_DROPS_MAX = 16,		/* after as many one in 65,536 */
	TQP_PLACE_BUSY_US = 20,
	TQP_PLACE_DEAD_MS = 1000,
	TQP_PLACE_RUN_PAGES = 4,		/* that follow each other in memory, on average */
	TQP_EDGE_BEHIND_BYTES = 128 << 10,	/* from the end of a post to the window's edge */
	TQP_EDGE_PART = 8,			/* of a call's time may pass before the next */
	TQP_EDGES = 128,			/* posts in a row at most, before one has none */
	TQP_EDGE_RTTS = 2,			/* that a post is open at least */
	TQP_QUEUE_LONG_BYTES = 4 << 20,		/* of memory; what a reader has not come to */
	TQP_QUEUE_BYTES = 8 << 20,		/* that may wait for such a reader at least */
	TQP_WINDOW_CALLS = 4,			/* of which the average says how much is read in a round trip */
	TQP_WINDOW_DRAIN_RTTS = 32,		/* from one time that the peer stands still to the next */
	TQP_WINDOW_IDLE_MS = 1000,		/* nobody posted for as long: the window is TCP's own again */
};

struct tqp_recv;

/* Where what is told beside a call's bytes goes: each part tells it, and the last part's counts. */
struct tqp_told {
	void *control;
	size_t bytes;
};

/* Lock: the sk lock, unless something else is said. */
struct tqp_place {
	refcount_t refs;		/* the socket's; the list's, until the NIC has forgotten it */
	struct rcu_head rcu;		/* the receive hook looks at it */
	struct net *net;		/* with a reference, and hooked */
	int urgent;			/* urgent.c; no lock */
	bool known;			/* to the hook, for a grace period; sk lock */
	unsigned long urgent_gp;	/* a grace period */
	struct list_head node;		/* tqp_place_mutex */
	struct sock *sk;		/* tqp_place_sk_lock; NULL: it has ended */
	struct tqp_offload_device *odev;	/* tqp_place_mutex, tqp_regs_mapping; NULL: the NIC went */
	struct work_struct end_work;
	u32 id;
	bool gone;			/* the NIC goes: nobody waits for it, or posts.  No lock */

	struct tqp_offload_post *post;	/* NIC and we; ours for as long as the place is */
	dma_addr_t post_dma;
	struct tqp_recv *owner;		/* whose memory is posted; NULL: nobody's */
	struct tqp_reg *reg;		/* that memory; NULL: it was left */
	u32 reg_page;			/* of it: where the post begins */
	bool open;			/* the NIC may write there, unless it is revoked */
	bool revoked;			/* other pages may be mapped there now.  tqp_regs_lock; rising */
	bool lost;			/* the NIC went while it wrote: the pages are given up */
	bool post_lost;			/* it may write to @post for ever; tqp_place_mutex */
	u32 posted;			/* its first sequence number */
	u32 end;			/* behind the last byte placed; once it is not open */

	u8 *rescued;			/* bytes [rescued_seq, end) that nobody has read yet */
	u32 rescued_seq;

	u32 misses;			/* posts in a row that did not pay */
	u32 drops;			/* posts in a row of which placed packets did not come to TCP */
	u32 skip;			/* readers that are not tried yet */

	int rcvbuf;			/* TCP's own sk_rcvbuf, while it has less; 0: it has that */
	int narrowed;			/* what it was given last */
	u32 clamp;			/* TCP's window_clamp, when last looked */
	struct tqp_reading reading;	/* by calls that may post */
	u64 drained_at;			/* ns */
	u64 held_at;			/* ns; a look for idle ones found the lock taken; that look's own */
	bool draining;			/* until less waits than is posted */

	u64 called_at, left_at;		/* ns; a reader's last call */
	u64 call_ns;			/* how long the one before took */
	bool prompt;			/* its reader came back at once */
	bool edged;			/* the window ends at @edge */
	u32 edge;
	u32 edges;			/* posts in a row that may have one; 0: none */
	u64 opened_at;			/* ns */
	s64 post_ns;			/* how long a post is open, the last few's average */
};

/* One call of a reader, on its stack. */
struct tqp_recv {
	struct tqp_place *place;	/* with a reference */
	u32 begin;			/* sequence number of its first byte */
	u32 bytes;			/* that it wants from there on */
	u32 queued;			/* of these: had come before, and lie in TCP's queue; the rest is posted */
	u32 done;			/* how many it has */
	size_t had;			/* the call's, before these */
	u32 placed_to;			/* behind the last byte that came through TCP as placed */
	u32 seen;			/* behind what the NIC had placed, when last looked; or no further than @placed_to */
	bool dropped;			/* that did not come so */
	bool cheap;			/* to post: it is pinned already, or lies in large pages */
	u32 offset;			/* of the first posted byte in the first of them */
	bool ended;			/* the stream */
	bool left;			/* the socket has another ULP: the rest is not ours to wait for */
};

/* ---- place.c ---- */
/* The socket gets a context, if there is one to be had.  Sleeps; not the sk lock. */
void tqp_place_make(struct sock *sk);
void tqp_place_put(struct tqp_place *place);
/* The socket has no use for it any more; any context.  Nothing is posted. */
void tqp_place_end(struct tqp_place *place);
/* The same of a socket that lives, whatever is posted; sk lock. */
void tqp_place_leave(struct tqp_stream *stream);
/* As tqp_place_end(); when it returns the NIC knows nothing of the flow. */
void tqp_place_end_wait(struct tqp_place *place);
/* The NIC goes: when it returns, it has forgotten all.  Takes no sk lock. */
void tqp_place_gone(struct tqp_offload_device *odev);
/* If the NIC of the socket's context went, it may have another one; sk lock. */
void tqp_place_renew(struct tqp_stream *stream);
/* The first for which @fits, with a reference, and one to its socket if that lives; all are asked. */
struct tqp_place *tqp_place_find(bool (*fits)(struct tqp_place *place, void *arg), void *arg,
				 struct sock **sk);
void tqp_place_exit(void);

/* Namespaces of sockets that have one, and their packets: see tqp_urgent_may(). */
struct tqp_place_hooks {
	int (*get)(struct net *net);
	void (*put)(struct net *net);
};
void tqp_place_init(const struct tqp_place_hooks *hooks);

/* ---- urgent.c ---- */
/*
 * For the receive hook, of packets that are urgent or @placed; rcu_read_lock(), which TCP's
 * part is under, too.  False: TCP must not see this one.
 */
bool tqp_urgent_may(const struct sock *sk, bool placed);
/* May packets be placed, which an urgent one would end?  rcu_read_lock(). */
bool tqp_urgent_is_first(const struct sock *sk);
/* May a post be opened?  A grace period after the socket got it; sk lock. */
bool tqp_urgent_may_post(const struct sock *sk, const struct tqp_place *place);
/* Nothing is placed any more. */
bool tqp_urgent_is_seen(const struct tqp_place *place);

/* Sequence number of the first posted byte. */
static inline u32 tqp_recv_seq(const struct tqp_recv *recv)
{
	return recv->begin + recv->queued;
}

static inline u32 tqp_recv_posted_bytes(const struct tqp_recv *recv)
{
	return recv->bytes - recv->queued;
}

static inline struct tqp_place *tqp_place_of(const struct sock *sk)
{
	const struct tqp_stream *stream = tqp_stream_of(sk);

	return stream ? stream->place : NULL;
}

/* ---- post.c; all under the sk lock ---- */
/*
 * Posts what is left of @msg, at most @want bytes, but for what has come already.  -EAGAIN: not
 * before @recv->queued bytes are copied, or all; any other error: not now.
 */
int tqp_post_open(struct sock *sk, struct tqp_place *place, struct tqp_recv *recv,
		   struct msghdr *msg, size_t want);
/* Takes the post back, if there is one, and rescues what of it is still to be read. */
void tqp_post_close(struct sock *sk, struct tqp_place *place);
/* The same without rescuing anything: the NIC writes no byte any more, place->end is right. */
void tqp_post_cancel(struct sock *sk, struct tqp_place *place);
/* For the owner of the memory, who changes it; tqp_regs_lock.  False: the NIC writes there just now. */
bool tqp_post_revoke(struct tqp_place *place);
/* Closed, and the memory is not kept for it. */
void tqp_post_leave(struct sock *sk, struct tqp_place *place);
/* After it was closed: the reader has no post any more. */
void tqp_post_end(struct tqp_place *place, struct tqp_recv *recv);
/* Is the next byte to be read one that was placed?  How many behind each other are. */
u32 tqp_post_next(struct sock *sk);
/*
 * Gives the reader up to @bytes of what was placed and comes next: those of its own post are
 * there already.  @recv: NULL if it has none.  Bytes; -EFAULT: its memory cannot be written.
 */
int tqp_post_take(struct sock *sk, struct tqp_recv *recv, struct msghdr *msg, size_t bytes,
		  struct tqp_told told);
/* No lock.  May packets have been placed, at which TCP's own functions stop? */
bool tqp_post_may_place(const struct sock *sk);
/* Has it no bytes, since they were placed? */
bool tqp_post_is_placed(const struct sk_buff *skb);
/* A copy of up to @bytes of such a packet, from @seq on; nobody has a post any more. */
int tqp_post_copy_out(struct sock *sk, u32 seq, struct msghdr *msg, u32 bytes);
static inline struct tqp_told tqp_told_now(const struct msghdr *msg)
{
	return (struct tqp_told) { msg->msg_control, msg->msg_controllen };
}

static inline void tqp_told_set(struct msghdr *msg, struct tqp_told told)
{
	msg->msg_control = told.control;
	msg->msg_controllen = told.bytes;
}

/* What TCP would tell of a call whose last packet is @skb, once it has it. */
void tqp_post_tell(struct sock *sk, struct msghdr *msg, struct sk_buff *skb, u32 bytes);

/* ---- window.c; under the sk lock ---- */
/* A round trip, or longer: without timestamps TCP takes the time in which a window's worth comes. */
u64 tqp_window_rtt_ns(const struct sock *sk);
/* A call begins, or ends: always the same of both. */
void tqp_window_measure(const struct sock *sk, struct tqp_reading *reading);
/* The peer is offered @room bytes at most; the memory that takes, or what it was told already. */
u64 tqp_window_narrow(struct sock *sk, u64 room);
/* @full: what waits is all that it would post. */
void tqp_window_drain(const struct sock *sk, struct tqp_place *place, bool full);
/* A reader posts, or would if less waited. */
void tqp_window_limit(struct sock *sk, struct tqp_place *place);
/* TCP's own again. */
void tqp_window_free(struct sock *sk, struct tqp_place *place);
/* No socket is left. */
void tqp_window_exit(void);

/* ---- queue.c ---- */
static inline bool tqp_queue_is_long(const struct sock *sk)
{
	return atomic_read(&sk->sk_rmem_alloc) > TQP_QUEUE_LONG_BYTES;
}

/* A reader that posts nothing leaves a long queue. */
void tqp_queue_bound(struct sock *sk);

/* ---- edge.c; under the sk lock ---- */
/* A reader's call that may post begins, and ends. */
void tqp_edge_call(struct tqp_place *place);
void tqp_edge_return(struct tqp_place *place);
/* The post is open, and has an owner. */
void tqp_edge_open(struct sock *sk, struct tqp_place *place);
/* Something came, which TCP has not acknowledged yet. */
void tqp_edge_keep(struct sock *sk, struct tqp_place *place);
/* The post is taken back. */
void tqp_edge_close(struct sock *sk, struct tqp_place *place);

/* ---- recv.c ---- */
void tqp_stream_recv_ops(struct proto *prot);

/* ---- part.c; not the sk lock ---- */
/* Placed bytes that come next and are not where this reader wants them, if there are any. */
int tqp_recv_rescued(struct sock *sk, struct msghdr *msg, size_t bytes, struct tqp_told begin);
/*
 * As TCP waits, which has just said that it has nothing.  0: it has something to say by now, bytes
 * or an end.  A signal ends the call whatever is in the queue: TCP says nothing of an urgent byte
 * while one is pending.  sk lock, which it gives away meanwhile.
 */
int tqp_recv_more(struct sock *sk, long *timeo);
/*
 * An urgent byte is next: who has bytes by now gets no more, as in one call of TCP's, to which each
 * part is a call that begins.  @done: in all parts.
 */
bool tqp_recv_at_mark(struct sock *sk, size_t done);
/* What ended a call after bytes had come is told by the next call, as in one call of TCP's. */
void tqp_recv_tell_later(struct sock *sk, int err);
/*
 * How many placed bytes were read.  TCP stops before a placed packet as at memory that is bad:
 * if there is none any more, and this has changed, another reader took it.
 */
u64 tqp_recv_taken(const struct sock *sk);
/* Does TCP tell more of what was received than its bytes? */
static inline bool tqp_recv_tells(const struct sock *sk, const struct msghdr *msg)
{
	return msg->msg_get_inq || tcp_sk(sk)->recvmsg_inq || sock_flag(sk, SOCK_RCVTSTAMP) ||
	       READ_ONCE(sk->sk_tsflags);
}

/* ---- peek.c ---- */
/*
 * No lock.  TCP's said @ret: what follows there, if that stopped at a placed packet.  False: others
 * have read since @begin was next, so at what it stopped is not known.  @told: at the begin.
 */
bool tqp_peek_on(struct sock *sk, struct msghdr *msg, size_t len, int flags, u32 begin,
		 struct tqp_told told, int *ret);

/* ---- zerocopy.c ---- */
int tqp_stream_getsockopt(struct sock *sk, int level, int optname, char __user *optval,
			  int __user *optlen);

/* ---- splice.c; under the sk lock ---- */
/* splice() knows of placed packets from here on; false: it cannot be had, so nothing may be posted. */
bool tqp_splice_put_on(struct sock *sk);
/* It is TCP's again; also of a socket that is being destroyed. */
void tqp_splice_take_off(struct sock *sk);

#endif
