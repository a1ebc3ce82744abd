/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tcp_qp: objects and who owns them.
 *
 *   tqp_device   one RDMA device on one netdev
 *     tqp_pd, tqp_mr, tqp_cq, tqp_qp   verbs objects; uverbs owns their lives
 *   tqp_conn     the TCP side of a QP: one socket with the tcp_qp ULP
 *
 * A tqp_qp knows rings and completion queues; a tqp_conn knows the socket, the
 * message log and the order of bytes.  They meet at attach and part at
 * tqp_conn_detach().
 *
 * Locks, outermost first:
 *   qp->mutex        attach, detach, modify, destroy (sleeps)
 *   socket lock      everything the data path does with a conn: SQ and RQ
 *                    indices, message log, sequence marks.  Process context
 *                    holds it by lock_sock(), softirq by bh_lock_sock().
 *   conn->done_lock  in-order completion of sends (softirq-safe)
 *   qp->lock         qp->state, qp->conn pointer (softirq-safe)
 *   cq->lock         the CQ ring and its notify flag (softirq-safe)
 * RCU protects the MR table (dev->mrs) for readers in softirq.
 */
#ifndef TQP_H
#define TQP_H

#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>
#include <tcp_qp/tcp_bth.h>
#include <tcp_qp/tcp_qp.h>
#include <tqp_offload.h>
#include "ring.h"

enum {
	TQP_QP_MAX = 1 << 16,
	TQP_CQ_MAX = 1 << 16,
	TQP_MR_MAX = 1 << 20,
	TQP_PD_MAX = 1 << 16,
	TQP_WR_MAX = 1 << 14,		/* per SQ or RQ; msn arithmetic needs < 32768 */
	TQP_CQE_MAX = 1 << 16,
	TQP_SGE_MAX = 32,
	TQP_INLINE_MAX_BYTES = 512,
	TQP_MR_MAX_BYTES_LOG2 = 38,
	TQP_MESSAGE_MAX_BYTES = 1 << 30,	/* below half the TCP sequence space */
};

/* Per-device counters, `rdma statistic show`: names are the enum in lower case. */
#define TQP_COUNTERS(X) \
	X(tx_messages) X(tx_bytes) X(tx_segments) X(tx_zerocopy_bytes) X(tx_copied_bytes) \
	X(tx_sack_stripped) X(tx_header_nomem) X(tx_credit_waits) X(tx_credit_probes) \
	X(rx_messages) X(rx_delivered_bytes) X(rx_placed_bytes) X(rx_copied_bytes) X(rx_stalls) \
	X(rx_bth_invalid) X(rx_protocol_errors) X(rx_length_errors) X(rx_protection_errors) \
	X(rtr_sent) X(rtr_received) X(rtr_timeouts) X(offload_qps) X(offload_refused) \
	X(software_qps) X(qp_errors) X(cq_overflows) X(tx_protection_errors) X(urgent_refused) \
	X(peer_resets) X(peer_closes) X(wqe_invalid)

#define TQP_COUNTER_ENUM(name) TQP_C_##name,
enum tqp_counter { TQP_COUNTERS(TQP_COUNTER_ENUM) TQP_C_COUNT };
#undef TQP_COUNTER_ENUM

struct tqp_conn;

struct tqp_device {
	struct ib_device ib;		/* first: ib_alloc_device() */
	struct net_device *netdev;	/* we hold a reference */
	netdevice_tracker netdev_tracker;
	struct tqp_offload_device *offload;	/* NULL: software only; constant for the device's life */
	struct list_head node;		/* tqp_devices, under tqp_devices_mutex */
	struct xarray mrs;		/* key >> 8 -> struct tqp_mr, RCU */
	struct xarray qps;		/* qpn -> struct tqp_qp */
	u32 next_mr, next_qp, next_pd;
	atomic64_t counters[TQP_C_COUNT];
};

struct tqp_ucontext {
	struct ib_ucontext ib;
};

struct tqp_pd {
	struct ib_pd ib;
	u32 pdn;
};

/*
 * References: one by the verbs object, one by each send whose pages are still
 * in TCP.  Receive placement uses it under RCU without a reference;
 * tqp_dereg_mr() waits for those.
 */
struct tqp_mr {
	struct ib_mr ib;
	struct rcu_head rcu;
	refcount_t refs;
	struct tqp_device *dev;
	u32 key;			/* lkey == rkey */
	u32 pdn;
	int access;			/* IB_ACCESS_* */
	u64 iova;
	u64 bytes;
	struct ib_umem *umem;
	struct page **pages;		/* [i]: pages of 1 << page_shift bytes, from iova rounded down */
	u32 nr_pages;
	u8 page_shift;
	bool offloaded;
	struct work_struct release_work;	/* unpinning sleeps */
};

struct tqp_cq {
	struct ib_cq ib;
	spinlock_t lock;
	struct tqp_ring *ring;
	u8 notify;			/* enum ib_cq_notify_flags wanted; 0: not armed */
	bool overflown;
};

struct tqp_qp {
	struct ib_qp ib;
	struct tqp_device *dev;
	struct tqp_pd *pd;
	struct tqp_cq *scq, *rcq;
	struct tqp_ring *sq, *rq;
	u32 qpn;
	struct ib_qp_cap cap;
	bool sq_sig_all;
	struct mutex mutex;
	spinlock_t lock;
	enum ib_qp_state state;		/* under lock */
	struct ib_qp_attr attr;		/* what query_qp returns */
	struct tqp_conn *conn;		/* under lock; holds a conn reference; stays till detach */
	struct kref ref;		/* destroy waits for it */
	struct completion released;
};

#define TQP_TO(type, member)                                                     \
	static inline struct type *to_##type(struct ib_##member *ib)             \
	{                                                                        \
		return container_of(ib, struct type, ib);                        \
	}
TQP_TO(tqp_device, device)
TQP_TO(tqp_pd, pd)
TQP_TO(tqp_mr, mr)
TQP_TO(tqp_cq, cq)
TQP_TO(tqp_qp, qp)
TQP_TO(tqp_ucontext, ucontext)
#undef TQP_TO

static inline void tqp_count(struct tqp_device *dev, enum tqp_counter c, u64 n)
{
	atomic64_add(n, &dev->counters[c]);
}

/* ---- device.c, main.c ---- */
extern struct workqueue_struct *tqp_wq;		/* unbound, for all that must sleep */
int tqp_device_create(struct net_device *netdev, const char *name);	/* rdma link add */
struct tqp_offload_device *tqp_offload_find(const struct net_device *netdev);	/* offload.c */

/* ---- mr.c ---- */
/* RCU read side; NULL if there is no such key. */
struct tqp_mr *tqp_mr_lookup(struct tqp_device *dev, u32 key);
/* The same with a reference that outlives the RCU section. */
struct tqp_mr *tqp_mr_get(struct tqp_device *dev, u32 key);
void tqp_mr_put(struct tqp_mr *mr);		/* any context */
/* 0, or -EACCES (PD or access), -EFAULT (bounds).  No sum can wrap. */
int tqp_mr_check(const struct tqp_mr *mr, u32 pdn, u64 addr, u64 bytes, int access);
/* Kernel address of checked @addr; *@run is set to the bytes contiguous from there, at most @bytes. */
void *tqp_mr_kaddr(const struct tqp_mr *mr, u64 addr, u32 bytes, u32 *run);
/*
 * Page fragments of checked [addr, addr + bytes), physically contiguous pages
 * joined.  Returns how many of @max were used; *@done is set to bytes covered.
 */
int tqp_mr_bvecs(const struct tqp_mr *mr, u64 addr, u32 bytes, struct bio_vec *bv, int max, u32 *done);

/* ---- cq.c ---- */
/* Any context.  False: the CQ is full; it is in error then and an event was raised. */
bool tqp_cq_post(struct tqp_cq *cq, const struct ib_uverbs_wc *wc, bool solicited);

/* ---- qp.c ---- */
struct tqp_qp *tqp_qp_get(struct tqp_qp *qp);
void tqp_qp_put(struct tqp_qp *qp);
enum ib_qp_state tqp_qp_state(struct tqp_qp *qp);
/* Move to RTS (from any state below) after a successful attach; process context. */
void tqp_qp_connected(struct tqp_qp *qp);
/*
 * Move to ERR; any context, idempotent.  Raises @event once if @event >= 0.
 * The caller (conn) flushes under the socket lock with tqp_qp_flush().
 */
bool tqp_qp_error(struct tqp_qp *qp, int event);
/* Complete every posted WQE of both rings with IB_WC_WR_FLUSH_ERR.  Ring owner's context. */
void tqp_qp_flush(struct tqp_qp *qp);

/* ---- conn: ulp.c and friends ---- */
/* Sleeps; under qp->mutex.  @resp is filled on success and where a reason is known. */
int tqp_conn_attach(struct tqp_qp *qp, struct socket *sock, const struct tcp_qp_attach_req *req,
		    struct tcp_qp_attach_resp *resp);
/* Sends were posted (or receives: same doorbell).  Process context, sleeps. */
void tqp_conn_doorbell(struct tqp_qp *qp);
/*
 * Part QP and socket; sleeps; under qp->mutex.  When it returns nothing on
 * the socket's side touches the QP, its rings, CQs or receive buffers.
 */
void tqp_conn_detach(struct tqp_qp *qp);
void tqp_conn_info(struct tqp_qp *qp, struct tcp_qp_info *info);
int tqp_conn_init(void);			/* module ladder: ULP, hooks */
void tqp_conn_exit(void);

#endif
