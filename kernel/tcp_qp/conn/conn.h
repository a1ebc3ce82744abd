/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The TCP side of a queue pair.  See docs/dataflow.md for the flow and tqp.h
 * for the lock order.
 *
 * A conn is born at attach and has one reference for each of: the QP, the
 * socket's ULP, every send whose pages TCP or a driver holds, every queued work.
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
#include <tcp_qp/tcp_bth_operands.h>
#include "wire/icrc.h"
#include "wire/msglog.h"
#include "wire/msgwire.h"
#include "wire/rxmsg.h"
#include "object/tqp.h"

enum {
	TQP_SNDBUF_BYTES = 8 << 20,		/* TCP may hold unsent and unacked, where it is allowed */
	TQP_RTR_FIRST_MS = 20,
	TQP_RTR_LAST_MS = 1000,
	TQP_STALL_FIRST_MS = 1,			/* look for late receives while data waits */
	TQP_STALL_LAST_MS = 64,
	TQP_PROBE_FIRST_MS = 200,		/* one message without credit */
	TQP_PROBE_LAST_MS = 2000,
	TQP_MEMORY_WAIT_MS = 20,		/* an allocation failed and no ACK will wake us */
	TQP_SEND_BVECS = 32,			/* page fragments per call into TCP; on the stack */
	TQP_SEND_PIECE_BYTES = 1 << 20,
	/* A turn: what is done under one hold of the socket lock, whoever feeds it; then others' turn. */
	TQP_TX_TURN_BYTES = 16 << 20,		/* into TCP: more than its send buffer takes */
	TQP_TX_WQE_BYTES = 8 << 10,		/* a WQE or a response counts for so many, beside its own */
	TQP_RX_TURN_BYTES = 8 << 20,		/* out of TCP */
	TQP_YIELD_MS = 1,			/* after a turn of tx_work, if others want the lock */
	TQP_RX_MESSAGE_BYTES = 512,		/* a message or an skb counts for so many, beside its own */
	TQP_TRAIN_BYTES = 4096,			/* of small messages, gathered */
	TQP_TRAIN_MESSAGE_BYTES = 256,		/* longer ones go to TCP one by one */
	TQP_MSS_ROUND_MIN_BYTES = 1024,		/* below this, rounding to 128 costs too much */
	TQP_READS_DEFAULT = 16,			/* unless modify_qp says max_rd_atomic */
	TQP_RESPONSES_MAX = TQP_OFFLOAD_READS_MAX,	/* further requests wait in TCP */
	TQP_LOG_EXTRA = 2 * TQP_RESPONSES_MAX,	/* records beside one for each SQ entry, once needed */
	TQP_REVOKE_FIRST_MS = 20,		/* deregistration: messages that are as good as over */
	TQP_KEEP_IDLE_S = 30,			/* keepalive, unless the application set its own */
	TQP_KEEP_INTERVAL_S = 5,
	TQP_KEEP_PROBES = 6,
	TQP_TERMINATE_MS = 1000,		/* for TCP to take why we end, and for the peer to acknowledge it */
	TQP_TERMINATE_LOOK_MS = 10,		/* for room in TCP */
};

enum tqp_conn_state {
	TQP_CONN_HANDSHAKE,
	TQP_CONN_ACTIVE,
	TQP_CONN_DEAD,
};

/* What fail_work is at.  It never sleeps for others: it is woken, or comes back. */
enum tqp_end_step {
	TQP_END_BEGIN,
	TQP_END_TERMINATE,		/* is on its way into TCP */
	TQP_END_HEARD,			/* and to the peer */
	TQP_END_CUT,			/* nothing is sent any more, but what drivers have */
	TQP_END_DRIVERS,
	TQP_END_OVER,
};

/* One work request in flight, or one READ response. */
struct tqp_tx_msg {
	/* refs: sender; each message until acknowledged; each response awaited; each skb with its pages */
	struct ubuf_info ubuf;
	struct tqp_conn *conn;
	struct tqp_mr **mrs;		/* pinned until done */
	u64 wr_id;
	u32 bytes;
	u16 unacked;			/* messages in the stream; sk lock */
	u16 awaited;			/* responses; sk lock */
	u8 nr_mrs;
	u8 wc_opcode;
	bool signaled;
	bool is_response;		/* not of the SQ */
	bool light;			/* copied as a whole: no skb, no driver has to do with it */
	bool loaded;			/* has its place in the stream */
	bool done;			/* under conn->done_lock */
};

/* What BIND_MW asks for. */
struct tqp_mw_bind {
	u32 old_key;			/* the window's, */
	u32 new_key;			/* whose low byte it takes */
	u32 lkey;			/* of the region */
	int access;			/* IB_ACCESS_REMOTE_* */
	u64 va;
	u64 bytes;
};

/* The WQE at sq_next, copied once.  Under the sk lock. */
struct tqp_wqe {
	bool valid;
	bool loaded;			/* checked, and a READ may have sent some of its requests */
	const struct tqp_op *op;
	u32 flags;			/* IB_SEND_* */
	u32 num_sge;
	u32 inline_bytes;
	u32 ex;				/* immediate or key to invalidate, host order */
	u32 rkey;
	u64 wr_id;
	u64 remote_addr;
	u64 compare_add;
	u64 swap;
	struct tqp_mw_bind bind;
	u32 part;			/* next SGE of a READ to ask for */
	u32 nr_sge;			/* of sges[], those with bytes */
	struct ib_sge *sges;		/* [cap.max_send_sge] */
	u8 *data;			/* [cap.max_inline_data] */
};

/* The message being handed to TCP: may take several calls.  Under the sk lock. */
struct tqp_tx_cur {
	bool active;
	bool is_inline;
	bool ends_wqe;			/* after it the SQ goes on */
	u8 nr_sge;
	u8 sge;				/* next byte: this SGE, */
	u32 sge_off;			/* at this offset */
	u32 left;
	struct tqp_tx_msg *msg;
	const struct ib_sge *sges;	/* of msg->mrs[] */
	const u8 *data;			/* is_inline */
	u8 operands[TCP_BTH_OPERANDS_MAX_BYTES];
};

/*
 * The last message handed to TCP, if the next one may share its segments: then
 * TCP was not told where it ends.  Under the sk lock.
 */
struct tqp_tx_train {
	bool open;
	u8 flags;			/* TCP_BTH_F_SOLICITED */
	u16 messages;			/* so far */
	u32 length;			/* of each */
	u32 at, end;			/* of bytes: TCP has not taken these of gathered ones */
	u8 *bytes;			/* [TQP_TRAIN_BYTES], from the first train on */
};

/* A READ or atomic of ours that waits for its response, at its msn.  Under the sk lock. */
struct tqp_read {
	struct tqp_tx_msg *msg;		/* NULL: none waits */
	u64 va;
	u32 key;
	u32 length;
	bool atomic;
};

/* A request of the peer's and its response.  Under the sk lock. */
struct tqp_response {
	struct tqp_tx_msg msg;
	struct tqp_mr *mr;		/* that it reads: pinned by msg */
	struct ib_sge source;
	u64 sink_va;
	u32 sink_key;
	u32 length;
	u16 msn;
	u8 opcode;
	bool busy;			/* from the request until TCP is done with the response */
	u8 value[TCP_BTH_ATOMIC_RESPONSE_BYTES];
};

/* The message being received, and its receive WQE.  Under the sk lock. */
struct tqp_rx_cur {
	struct tqp_rx_msg msg;
	struct tqp_rx_train train;
	bool have_wqe;
	u8 nr_sge;
	u64 wr_id;
	u64 room;			/* of all SGEs */
	struct ib_sge *sges;		/* as many as a receive may have */
	u8 operands[TCP_BTH_OPERANDS_MAX_BYTES];
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

/* What of the socket was otherwise before attach; sk lock. */
struct tqp_sock_saved {
	void (*data_ready)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*state_change)(struct sock *sk);
	int rcvlowat;
	int sndbuf;
	bool sndbuf_locked;
	bool nagle_off;
	bool gso_disabled;		/* by us */
};

/* The connection manager's end of a connection, as a conn knows it. */
struct tqp_conn_owner {
	const struct tqp_conn_owner_ops {
		void (*get)(struct tqp_conn_owner *owner);
		void (*put)(struct tqp_conn_owner *owner);
		/* Something happened to the conn; any context. */
		void (*wake)(struct tqp_conn_owner *owner);
	} *ops;
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
	bool icrc;			/* on what we send */
	bool installed;			/* socket callbacks are ours; sk lock */
	bool undone;			/* the socket is as it was before attach; sk lock */
	struct mutex plain_mutex;	/* one recv() of plain bytes; outside the sk lock */
	wait_queue_head_t wait;		/* attach: peer_ready or DEAD */

	/* handshake; bits set from softirq without the sk lock */
	bool rtr_enabled;		/* our side can receive */
	bool rtr_seen;			/* peer's rtr */
	bool rtr_acked;			/* peer saw ours */
	bool rtr_owed;			/* peer repeats its rtr: acknowledge it */
	bool peer_stock;		/* SENDs only, ver 1 beside TCP's own timestamps */
	bool peer_trains;		/* it takes them */
	unsigned long rtr_deadline;	/* jiffies; 0: attach itself waits */
	u32 rtr_delay_ms;
	struct delayed_work rtr_work;

	/* MSS: what we add to icsk_ext_hdr_len, for which path MTU */
	u16 ext_hdr_bytes;
	u32 mss_pmtu;

	/* transmit, sk lock */
	struct tqp_msglog log;
	struct tqp_tx_msg **log_msg;	/* [log entries]: whose the record is; NULL: nobody waits */
	struct tqp_tx_msg *tx;		/* [sq entries] */
	atomic_t tx_live;		/* sends and responses whose pages TCP or a driver may read */
	struct tqp_mr **tx_mrs;		/* [sq entries * max_send_sge] */
	struct ib_sge *sges;		/* wqe's and rx's, then inline data */
	struct tqp_wqe wqe;
	struct tqp_tx_cur cur;
	struct tqp_tx_train train;
	u32 tx_first_seq;		/* valid if tqp_tx_begun() */
	u32 sq_next;			/* ring index of the next WQE to load */
	u32 sq_mask;
	u16 tx_msn;			/* next untagged */
	u16 tx_write_msn;
	u16 tx_request_msn;
	u16 peer_limit;			/* first msn the peer has no receive for; written in softirq */
	bool credits_seen;
	bool probe_allowed;
	bool tx_wait_space;
	bool tx_wait_credit;
	bool tx_wait_memory;
	bool tx_wait_log;
	bool tx_wait_read;		/* fence, or too many READs */
	bool tx_wait_response;		/* READs through a window that is taken back */
	bool tx_running;
	bool tx_failed;			/* the WQE at sq_next was refused */
	s32 tx_turn;			/* TQP_TX_TURN_BYTES, what is left of them */
	u32 tx_bad_status;		/* enum ib_wc_status */
	u64 tx_bad_wr_id;
	u32 probe_delay_ms;
	struct work_struct tx_work;
	struct delayed_work probe_work;

	/* READs and atomics: ours, and the peer's; sk lock */
	struct tqp_read *reads;		/* [TQP_OFFLOAD_READS_MAX], from the first one on */
	u16 reads_out;
	struct tqp_response *responses;	/* [TQP_RESPONSES_MAX], from the first one on */
	u32 response_head;		/* next to send */
	u32 response_tail;		/* next to use */
	bool rx_wait_response;

	/* send completion */
	spinlock_t done_lock;
	bool tx_dead;			/* no more send CQEs; done_lock */

	/* receive, sk lock */
	struct tqp_rx_cur rx;
	bool rx_started;		/* the first message was seen */
	bool rx_stalled;
	bool rx_running;
	bool rx_eof;
	u32 rx_seq;			/* up to where we have read; valid if rx_started */
	bool rx_yielded;		/* the turn is over, tx_work goes on */
	struct tqp_rx_numbers rx_next;	/* .untagged == messages completed, low 16 bits */
	u16 advertised;			/* last msn limit sent */
	u32 rx_stall_ms;
	u32 watch_ms;
	struct delayed_work rx_work;

	/* offload */
	struct mutex offload_mutex;
	bool offloaded;			/* context exists; offload_mutex */
	struct tqp_offload_shadow *shadow;
	struct tqp_offload_reads *reads_shadow;	/* from the first READ on */
	dma_addr_t shadow_dma, reads_shadow_dma;
	dma_addr_t *rq_dma;
	u32 nr_rq_dma;

	/* the end */
	struct work_struct fail_work;
	struct delayed_work late_work;	/* wakes fail_work */
	enum tqp_end_step end_step;	/* fail_work's own, as the three below */
	bool end_abort;			/* the connection ends with a RST */
	bool terminate_begun;
	unsigned long end_by;		/* jiffies; of the step */
	bool end_waits;			/* who finishes what fail_work waits for wakes it */
	bool told;			/* the peer was, or never will be; conn->wait is woken */
	u32 fail_reason;
	struct tqp_conn_owner *owner;	/* whose socket it is, if not the application's; a reference */
	bool ended;			/* DEAD, and the QP flushed (sk lock) or parted from; release/acquire */
	int sk_err;			/* what TCP gave up for */
	struct tcp_bth_terminate nak;	/* to tell the peer, if it has a syndrome */
	bool ack_held;			/* nothing from ack_limit on is acknowledged any more */
	u32 ack_limit;
	struct tqp_tx_msg *error_msg;	/* the WQE that failed at the peer, */
	u32 error_status;		/* how (enum ib_wc_status) */

	struct tqp_sock_saved saved;

	/* struct tcp_qp_info counters, sk lock */
	struct tcp_qp_info info;
};

/* Has TCP a byte of ours, or is it about to?  sk lock. */
static inline bool tqp_tx_begun(const struct tqp_conn *conn)
{
	return conn->info.tx_bytes || !tqp_msglog_empty(&conn->log);
}

/* Where the bytes of ours that TCP has end: write_seq, if nobody else writes.  sk lock. */
static inline u32 tqp_tx_end_seq(const struct tqp_conn *conn)
{
	return conn->tx_first_seq + (u32)conn->info.tx_bytes;
}

static inline struct tqp_conn *tqp_conn_of(const struct sock *sk)
{
	return (__force struct tqp_conn *)inet_csk(sk)->icsk_ulp_data;
}

static inline struct tqp_conn *tqp_conn_rcu(const struct sock *sk)
{
	return (__force struct tqp_conn *)rcu_dereference_raw(inet_csk(sk)->icsk_ulp_data);
}

/* Bytes of the longest message that can be sent. */
static inline u32 tqp_message_max(const struct tqp_conn *conn)
{
	return conn->icrc ? (u32)TCP_BTH_V0_MESSAGE_MAX_BYTES : (u32)TQP_MESSAGE_MAX_BYTES;
}

/* ---- conn.c ---- */
/* Its memory, with what needs nobody else; tqp_conn_create() has the rest. */
struct tqp_conn *tqp_conn_alloc(struct tqp_qp *qp);
void tqp_conn_free(struct tqp_conn *conn);
int tqp_conn_cache_init(void);
void tqp_conn_wait_gone(void);
void tqp_conn_cache_exit(void);
/* Whoever calls has a reference already, or the socket lock, which keeps the ULP's. */
struct tqp_conn *tqp_conn_get(struct tqp_conn *conn);
/* Under RCU alone: false if nobody has one any more. */
bool tqp_conn_tryget(struct tqp_conn *conn);
void tqp_conn_put(struct tqp_conn *conn);	/* any context */
/* Queue @work with a reference to the conn. */
void tqp_queue_delayed(struct tqp_conn *conn, struct delayed_work *work, u32 ms);
/* Who waits for it should look at it, and its owner, if any; any context. */
void tqp_conn_notify(struct tqp_conn *conn);
/* Room for one more message?  READs and responses make the log grow; process context, sk lock. */
bool tqp_log_room(struct tqp_conn *conn);

/* ---- fail.c ---- */
/* Stop the conn for @reason; sk lock.  Completions are flushed from fail_work. */
void tqp_conn_fail(struct tqp_conn *conn, enum tcp_qp_reason reason);
/* The same for a fault in what is being received: the peer is told, and its message not acknowledged. */
void tqp_conn_nak(struct tqp_conn *conn, enum tcp_qp_reason reason, enum tcp_bth_syndrome syndrome);
/* The peer's TERMINATE; sk lock. */
void tqp_terminated(struct tqp_conn *conn, const u8 *operands);
/* Queue fail_work with a reference; any context. */
void tqp_end_kick(struct tqp_conn *conn);
/* What fail_work waits for may have come; any context. */
static inline void tqp_end_wake(struct tqp_conn *conn)
{
	if (READ_ONCE(conn->end_waits))
		tqp_end_kick(conn);
}

/* No completion of a send from now on. */
void tqp_tx_die(struct tqp_conn *conn);

#endif
