/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Can Linux TCP be told of bytes that somebody else has sent?
 *
 * "The hardware" is a raw sender (wire.c): messages of a connection leave as segments
 * that TCP knows nothing of, within what TCP's windows allow at that time.  Then TCP is
 * told (told.c): the same bytes are sent once more by the socket, and our queue_xmit
 * drops their first transmission.  So the congestion window, the retransmission queue,
 * timers and samples are TCP's own.
 *
 * Lock: the socket's.  @untold and @next are only touched with it held.
 */
#ifndef CATCH_UP_H
#define CATCH_UP_H

#include <linux/hrtimer.h>
#include <linux/ioctl.h>
#include <net/tcp.h>

enum {
	CATCH_UP_MESSAGES_MAX = 64,	/* that TCP has not been told of */
	CATCH_UP_LATEST_US = 4000,
};

/* Where TCP is told.  Whatever it is, also once an ACK comes, and in an eighth of the RTO. */
enum catch_up_where {
	CATCH_UP_IN_PROCESS,	/* by who sent, at once */
	CATCH_UP_IN_SOFTIRQ,	/* by a timer, after 200 us */
	CATCH_UP_AT_ACK,	/* only then */
};

struct catch_up_attach {
	__s32 fd;
	__u32 repair;		/* 1: tell it by TCP_REPAIR, which looks at no window */
};

struct catch_up_send {
	__u32 bytes;		/* of one message, at most 4,096 */
	__u32 where;		/* enum catch_up_where */
};

struct catch_up_counts {
	__u64 messages;		/* that were sent by the hardware */
	__u64 refused;		/* because the window or the connection's state did not allow them */
	__u64 told_in_process;
	__u64 told_in_softirq;
	__u64 told_in_backlog;
	__u64 told_in_release;
	__u64 insisted;		/* TCP would have kept it for later, and was told by TCP_REPAIR */
	__u64 acks_ahead;	/* TCP saw an ACK of bytes it knew nothing of: must stay 0 */
	__u64 failed;		/* TCP could not be told now: no memory */
	__u64 rewritten;	/* pure ACKs whose sequence number was the hardware's */
	__u64 dropped;		/* packets of TCP's whose bytes had left */
};

#define CATCH_UP_ATTACH	_IOW('u', 1, struct catch_up_attach)
#define CATCH_UP_SEND	_IOW('u', 2, struct catch_up_send)	/* EAGAIN: refused now */
#define CATCH_UP_HOLD	_IOW('u', 3, __u32)			/* microseconds with the socket's lock */
#define CATCH_UP_COUNTS	_IOR('u', 4, struct catch_up_counts)

struct catch_up_message {
	struct page *page;
	u32 seq, bytes, offset;	/* in the page */
	u64 sent_ns;
};

struct catch_up {
	struct sock *sk;
	struct proto prot;
	struct proto *old_prot;
	struct inet_connection_sock_af_ops af_ops;
	const struct inet_connection_sock_af_ops *old_af_ops;
	int (*old_backlog_rcv)(struct sock *sk, struct sk_buff *skb);
	struct hrtimer timer;
	struct catch_up_message untold[CATCH_UP_MESSAGES_MAX];
	u32 nr_untold;
	u32 next;		/* behind the last byte that the hardware sent */
	bool telling;
	bool owed;		/* the owner of the socket is to tell before it does anything else */
	bool repair;
	u32 first;		/* where the stream begins: a byte's value is made of its offset */
	struct catch_up_counts counts;
};

/* ---- told.c; all with the socket's lock ---- */
void catch_up_tell(struct catch_up *c, __u64 *where);
/* The ordinary queue_xmit of the socket, without what has left already. */
int catch_up_xmit(struct sock *sk, struct sk_buff *skb, struct flowi *fl);

/* ---- wire.c ---- */
/* What of a segment TCP would decide; taken with the socket's lock, used without it. */
struct catch_up_template {
	__be32 saddr, daddr;
	__be16 sport, dport;
	u32 ack, tsval, tsecr;
	u16 window;
	u32 mss;
	bool timestamps;
	struct dst_entry *dst;	/* holds it */
};
void catch_up_template(struct sock *sk, struct catch_up_template *t);
void catch_up_emit(const struct catch_up_template *t, const struct catch_up_message *m);

/* ---- main.c ---- */
struct catch_up *catch_up_of(const struct sock *sk);
/* Unless it is to happen sooner, TCP is told after @us. */
void catch_up_arm(struct catch_up *c, u32 us);

#endif
