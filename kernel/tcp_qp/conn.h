/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The TCP side of a queue pair.  See docs/dataflow.md for the flow and tqp.h
 * for the lock order.
 *
 * A conn is born at attach and has one reference for each of: the QP, the
 * socket's ULP, every send whose pages TCP still holds, every queued work.
 * "sk lock" below is the socket lock in either of its forms.
 *
 *   HANDSHAKE --peer's rtr--> ACTIVE --any error, close, detach--> DEAD
 *
 * DEAD is final.  What TCP already has of sent messages it goes on sending,
 * with its options, until the socket is destroyed.
 */
#ifndef TQP_CONN_H
#define TQP_CONN_H

#include <linux/skbuff.h>
#include <linux/workqueue.h>
#include <linux/wait.h>
#include <net/tcp.h>
#include <net/mptcp.h>
#include "msglog.h"
#include "msgwire.h"
#include "rxmsg.h"
#include "tqp.h"

enum {
	TQP_SNDBUF_BYTES = 8 << 20,		/* zero-copy bytes TCP may hold unsent and unacked */
	TQP_RTR_FIRST_MS = 20,
	TQP_RTR_LAST_MS = 1000,
	TQP_STALL_FIRST_MS = 1,			/* look for late receives while data waits */
	TQP_STALL_LAST_MS = 64,
	TQP_PROBE_FIRST_MS = 200,		/* one message without credit */
	TQP_PROBE_LAST_MS = 2000,
	TQP_SEND_BVECS = 64,			/* page fragments per call into TCP */
	TQP_SEND_PIECE_BYTES = 1 << 20,
	TQP_MSS_ROUND_MIN_BYTES = 1024,		/* below this, rounding to 128 costs too much */
};

/*
 * The LOCAL_IN hook leaves its mapping as an skb extension for the receive
 * loop.  It overlays struct mptcp_ext: the id is MPTCP's, whose sockets we
 * refuse, because TCP keeps skbs with different MPTCP extensions apart
 * everywhere it would merge them.
 */
static_assert(sizeof(struct tqp_skb_map) <= sizeof(struct mptcp_ext));

enum tqp_conn_state {
	TQP_CONN_HANDSHAKE,
	TQP_CONN_ACTIVE,
	TQP_CONN_DEAD,
};

/* One send in flight; slot i belongs to SQ ring entry i. */
struct tqp_tx_msg {
	struct ubuf_info ubuf;		/* refs: sender, acknowledgement, each skb with its pages */
	struct tqp_conn *conn;
	struct tqp_mr **mrs;		/* pinned until done */
	u64 wr_id;
	u32 end_seq;
	u32 bytes;
	u8 nr_mrs;
	u8 wc_opcode;
	bool signaled;
	bool loaded;			/* has its place in the stream */
	bool done;			/* under conn->done_lock */
};

/* The send being handed to TCP: may take several calls.  Under the sk lock. */
struct tqp_tx_cur {
	bool active;
	bool is_inline;
	u8 nr_sge;
	u8 sge;				/* next byte: this SGE, */
	u32 sge_off;			/* at this offset */
	u32 left;
	struct tqp_tx_msg *msg;
	struct ib_sge sges[TQP_SGE_MAX];
	u8 data[TQP_INLINE_MAX_BYTES];
};

/* The message being received, and its receive WQE.  Under the sk lock. */
struct tqp_rx_cur {
	struct tqp_rx_msg msg;
	bool have_wqe;
	u8 nr_sge;
	u64 wr_id;
	u64 room;			/* of all SGEs */
	struct ib_sge sges[TQP_SGE_MAX];
};

/* Our copies of a socket family's operations, made once each and kept till unload. */
struct tqp_family {
	struct proto *base_prot;
	const struct proto_ops *base_ops;
	const struct inet_connection_sock_af_ops *base_af;
	struct proto prot;
	struct proto_ops ops;
	struct inet_connection_sock_af_ops af;
};

struct tqp_conn {
	struct kref ref;
	struct rcu_work free_work;
	struct tqp_device *dev;
	struct sock *sk;		/* we hold a reference */
	struct tqp_qp *qp;		/* NULL after detach; sk lock */
	const struct tqp_family *family;
	enum tqp_conn_state state;	/* sk lock */
	u32 qpn;
	u32 engine;			/* enum tcp_qp_engine */
	u32 reason;
	u8 wire_version;		/* what leaves this host (offload: what the switch makes of it) */
	u8 host_version;		/* what queue_xmit writes */
	bool timestamps;		/* folded */
	bool installed;			/* socket callbacks are ours */
	wait_queue_head_t wait;		/* attach: peer_ready or DEAD */

	/* handshake; bits set from softirq without the sk lock */
	bool rtr_enabled;		/* our side can receive */
	bool rtr_seen;			/* peer's rtr */
	bool rtr_acked;			/* peer saw ours */
	bool rtr_owed;			/* peer repeats its rtr: acknowledge it */
	unsigned long rtr_deadline;	/* jiffies; 0: attach itself waits */
	u32 rtr_delay_ms;
	struct delayed_work rtr_work;

	/* MSS: what we add to icsk_ext_hdr_len, for which path MTU */
	u16 ext_hdr_bytes;
	u32 mss_pmtu;

	/* transmit, sk lock */
	struct tqp_msglog log;
	struct tqp_tx_msg *tx;		/* [sq entries] */
	struct tqp_mr **tx_mrs;		/* [sq entries * max_send_sge] */
	struct tqp_tx_cur cur;
	struct bio_vec bvecs[TQP_SEND_BVECS];
	u32 sq_next;			/* ring index of the next WQE to load */
	u32 tx_acked;			/* ring index of the oldest unacknowledged send */
	u16 tx_msn;
	u16 peer_limit;			/* first msn the peer has no receive for; written in softirq */
	bool credits_seen;
	bool probe_allowed;
	bool tx_wait_space;
	bool tx_wait_credit;
	bool tx_running;
	bool tx_failed;			/* the WQE at sq_next was refused */
	u32 tx_bad_status;		/* enum ib_wc_status */
	u64 tx_bad_wr_id;
	u32 probe_delay_ms;
	struct work_struct tx_work;
	struct delayed_work probe_work;

	/* send completion */
	spinlock_t done_lock;
	bool tx_dead;			/* no more send CQEs; done_lock */

	/* receive, sk lock */
	struct tqp_rx_cur rx;
	bool rx_started;		/* the first message was seen */
	bool rx_stalled;
	bool rx_running;
	bool rx_eof;
	u16 rx_msn;			/* next untagged msn == messages completed, low 16 bits */
	u16 advertised;			/* last msn limit sent */
	u32 rx_stall_ms;
	u32 watch_ms;
	struct delayed_work rx_work;

	/* offload */
	struct mutex offload_mutex;
	bool offloaded;			/* context exists; offload_mutex */
	struct nupa_qp_shadow *shadow;
	dma_addr_t shadow_dma;
	dma_addr_t *rq_dma;
	u32 nr_rq_dma;

	struct work_struct fail_work;
	u32 fail_reason;

	/* callbacks before us */
	void (*saved_data_ready)(struct sock *sk);
	void (*saved_write_space)(struct sock *sk);
	void (*saved_state_change)(struct sock *sk);
	void (*saved_error_report)(struct sock *sk);

	/* struct tcp_qp_info counters, sk lock */
	struct tcp_qp_info info;
};

static inline struct tqp_conn *tqp_conn_of(const struct sock *sk)
{
	return (__force struct tqp_conn *)inet_csk(sk)->icsk_ulp_data;
}

static inline struct tqp_conn *tqp_conn_rcu(const struct sock *sk)
{
	return (__force struct tqp_conn *)rcu_dereference_raw(inet_csk(sk)->icsk_ulp_data);
}

extern struct tcp_ulp_ops tqp_ulp_ops;

/* ---- attach.c ---- */
struct tqp_conn *tqp_conn_get(struct tqp_conn *conn);
void tqp_conn_put(struct tqp_conn *conn);	/* any context */
/* Stop the conn for @reason; sk lock.  Completions are flushed from fail_work. */
void tqp_conn_fail(struct tqp_conn *conn, enum tcp_qp_reason reason);
void tqp_conn_fail_work(struct work_struct *work);
/* Remove the switch's context; sleeps, idempotent. */
void tqp_conn_offload_stop(struct tqp_conn *conn);
int tqp_conn_offload_start(struct tqp_conn *conn);

/* ---- ulp.c ---- */
int tqp_ulp_attach(struct socket *sock, struct tqp_conn *conn);
void tqp_ulp_restore(struct tqp_conn *conn);	/* socket is plain TCP again; sk lock */
void tqp_mss_update(struct tqp_conn *conn);	/* sk lock */
int tqp_ulp_init(void);
void tqp_ulp_exit(void);

/* ---- wire.c ---- */
int tqp_queue_xmit(struct sock *sk, struct sk_buff *skb, struct flowi *fl);
u16 tqp_credit_limit(const struct tqp_conn *conn);	/* sk lock */

/* ---- hook.c ---- */
int tqp_hook_init(void);
void tqp_hook_exit(void);
static inline const struct tqp_skb_map *tqp_skb_map(struct sk_buff *skb)
{
	const struct tqp_skb_map *map = skb_ext_find(skb, SKB_EXT_MPTCP);

	return map && map->magic == TQP_MAP_MAGIC ? map : NULL;
}

/* ---- handshake.c ---- */
/* Queue @work with a reference to the conn. */
void tqp_queue_delayed(struct tqp_conn *conn, struct delayed_work *work, u32 ms);
void tqp_rtr_start(struct tqp_conn *conn);	/* sk lock */
void tqp_rtr_work(struct work_struct *work);
/* A segment of the peer's carried an option: any context, RCU. */
void tqp_peer_flags(struct tqp_conn *conn, u8 flags);
void tqp_peer_credits(struct tqp_conn *conn, u16 limit);
void tqp_credit_update(struct tqp_conn *conn);	/* tell the peer if it gained much; sk lock */
void tqp_probe_work(struct work_struct *work);

/* ---- tx.c ---- */
void tqp_tx_run(struct tqp_conn *conn);		/* process context, sk lock */
void tqp_tx_work(struct work_struct *work);
void tqp_tx_kick(struct tqp_conn *conn);	/* any context: run it soon */

/* ---- txdone.c ---- */
void tqp_tx_msg_init(struct tqp_tx_msg *msg, struct tqp_conn *conn);
void tqp_tx_msg_put(struct tqp_tx_msg *msg);
void tqp_clean_acked(struct sock *sk, u32 acked_seq);
bool tqp_tx_outstanding(const struct tqp_conn *conn);	/* sk lock */
void tqp_tx_finish_bad(struct tqp_conn *conn);		/* sk lock */
void tqp_tx_drop(struct tqp_conn *conn);		/* sk lock */

/* ---- rx.c ---- */
void tqp_rx_run(struct tqp_conn *conn);		/* sk lock, any context */
void tqp_rx_work(struct work_struct *work);

/* ---- place.c ---- */
/*
 * Copy @bytes at @skb_off of @skb to offset @at of the current receive.
 * 0, or an enum ib_wc_status to fail the receive with.
 */
enum ib_wc_status tqp_place_copy(struct tqp_conn *conn, struct sk_buff *skb, u32 skb_off, u32 at,
				 u32 bytes);

#endif
