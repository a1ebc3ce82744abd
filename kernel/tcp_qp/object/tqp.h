/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tcp_qp: objects and who owns them.
 *
 *   tqp_device   one RDMA device on one netdev
 *     tqp_pd, tqp_mr, tqp_cq, tqp_srq, tqp_qp   verbs objects; uverbs owns their lives
 *   tqp_conn     the TCP side of a QP: one socket with the tcp_qp ULP
 *
 * A tqp_qp knows rings and completion queues; a tqp_conn knows the socket, the
 * message log and the order of bytes.  They are joined at attach and parted
 * by tqp_conn_detach().
 *
 * Locks, outermost first:
 *   qp->mutex        attach, detach, modify, destroy; bells (sleeps)
 *   socket lock      everything the data path does with a conn: SQ and RQ
 *                    indices, message log, sequence marks.  Process context
 *                    holds it by lock_sock(), softirq by bh_lock_sock(), a conn's
 *                    works by tqp_lock_or_defer(): they never sleep for a process.
 *   tx.done_lock     in-order completion of a conn's sends (softirq-safe)
 *   qp->lock         qp->state, qp->conn pointer (softirq-safe)
 *   srq->lock        the SRQ ring (softirq-safe)
 *   cq_fd->lock      which CQ a completion descriptor is of; inside it dev->qps
 *   cq->lock         the CQ ring and its notify flag (softirq-safe)
 * A conn's offload.mutex and socket.plain_mutex sleep and are outside of the socket lock.
 * RCU protects the MR table (dev->mrs) for readers in softirq.
 */
#ifndef TQP_H
#define TQP_H

#include <linux/idr.h>
#include <linux/if_ether.h>
#include <linux/iosys-map.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/nospec.h>
#include <linux/percpu.h>
#include <linux/poll.h>
#include <linux/rhashtable-types.h>
#include <linux/siphash.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>
#include <tcp_qp/tcp_bth.h>
#include <tcp_qp/tcp_qp.h>
#include <tqp_offload.h>
#include "object/compat.h"
#include "object/ring.h"

enum {
	TQP_QP_MAX = 1 << 16,
	TQP_QPN_MIN = 2,		/* 0 and 1 are IBTA's SMI and GSI */
	TQP_QPN_MAX = (1 << 24) - 1,
	TQP_PSN_MAX = (1 << 24) - 1,
	TQP_CQ_MAX = 1 << 16,
	TQP_MR_MAX = 1 << 20,
	TQP_PD_MAX = 1 << 16,
	TQP_SRQ_MAX = 1 << 16,
	TQP_WR_MAX = 1 << 14,		/* per SQ or RQ; msn arithmetic needs < 32768 */
	TQP_CQE_MIN = 31,		/* a page has room for them, and some need more than they ask for */
	TQP_CQE_MAX = 1 << 20,		/* 128 MiB, charged to who asks */
	TQP_CQ_MOVE_MAX = 256,		/* entries copied at once by a resize, interrupts off */
	TQP_MW_FIRST = 1 << 23,		/* index of windows' keys: bit 31 tells them from regions' */
	TQP_RANDOM_TRIES = 64,		/* for a key or number that nobody has */
	TQP_MW_MAX = 1 << 16,
	TQP_SGE_MAX = 32,
	TQP_INLINE_MAX_BYTES = 512,
	TQP_DRIVER_MS = 30000,			/* for its transmit queue: a hung device is reset earlier */
	TQP_LEAVE_MS = 1000,		/* a removed device's objects, for drivers to let go */
	TQP_MR_MAX_BYTES_LOG2 = 38,
	TQP_MESSAGE_MAX_BYTES = 1 << 30,	/* below half the TCP sequence space */
	TQP_RD_ATOMIC_MAX = TQP_OFFLOAD_READS_MAX,	/* outstanding READs and atomics, each way */
	/* IBTA: a try lasts for the unit times 2 to the QP's timeout. */
	TQP_TIMEOUT_UNIT_NS = 4096,
	TQP_TIMEOUT_MAX = 31,
	TQP_RETRIES_MAX = 7,
};

/* Per-device counters, `rdma statistic show`: names are the enum in lower case. */
#define TQP_COUNTERS(X) \
	X(tx_messages) X(tx_bytes) X(tx_segments) X(tx_zerocopy_bytes) X(tx_copied_bytes) \
	X(tx_sack_stripped) X(tx_header_nomem) X(tx_credit_waits) X(tx_credit_probes) X(tx_memory_waits) X(tx_train_messages) X(tx_nic_messages) \
	X(tx_release_timeouts) X(doorbells) X(tx_watch_looks) X(tx_bell_rings) X(tx_bell_pauses) \
	X(rx_messages) X(rx_delivered_bytes) X(rx_placed_bytes) X(rx_copied_bytes) X(rx_stalls) X(rx_quick_acks) X(rx_carried_acks) X(rx_nic_messages) X(rx_turns) \
	X(rx_protocol_errors) X(rx_length_errors) X(rx_protection_errors) \
	X(rtr_sent) X(rtr_received) X(rtr_timeouts) X(offload_qps) X(offload_refused) \
	X(software_qps) X(qp_errors) X(cq_overflows) X(tx_protection_errors) X(urgent_refused) \
	X(peer_resets) X(peer_closes) X(wqe_invalid) X(naks_sent) X(naks_received) \
	X(rx_write_bytes) X(rx_read_bytes) X(rx_read_requests) X(rx_atomics) X(rx_access_errors) \
	X(cm_connects) X(cm_requests) X(cm_accepted) X(cm_rejected) X(cm_established) \
	X(cm_garbage) X(cm_timeouts) X(cm_evicted) X(cm_backlog_full) \
	X(number_connects) X(number_taken) X(number_parked) X(number_refused) \
	X(number_established) X(number_unreachable) \
	X(ud_tx_messages) X(ud_tx_dropped) X(ud_rx_messages) X(ud_rx_unknown_qp) X(ud_rx_bad_qkey) \
	X(ud_rx_no_receive) X(ud_rx_too_short) X(ud_rx_malformed) X(ud_rx_overload)

#define TQP_COUNTER_ENUM(name) TQP_C_##name,
enum tqp_counter { TQP_COUNTERS(TQP_COUNTER_ENUM) TQP_C_COUNT };
#undef TQP_COUNTER_ENUM

enum {
	TQP_UVERBS_ABI_VERSION = 2,	/* rxe's: the librxe provider matches it */
};

struct tqp_conn;
struct tqp_ep;
struct tqp_number;
struct tqp_ud;

/* One processor's share; a reader adds up all of them. */
struct tqp_counters {
	u64 v[TQP_C_COUNT];
};

struct tqp_device {
	struct ib_device ib;		/* first: ib_alloc_device() */
	struct net_device *netdev;	/* we hold a reference */
	netdevice_tracker netdev_tracker;
	struct tqp_offload_device *offload;	/* NULL: software only; constant for the device's life */
	struct dma_pool *shadows, *shadow_reads, *ring_ctls;	/* of its dma_dev; shadow.c */
	struct list_head node;		/* tqp_devices, under tqp_devices_mutex */
	struct rhashtable mrs;		/* key -> struct tqp_mr, RCU; tqp_mr_table_init() */
	struct xarray mws;		/* key >> 8 -> struct tqp_window, RCU */
	struct xarray qps;		/* tqp_qpn_index() -> struct tqp_qp */
	struct xarray uds;		/* QPN -> struct tqp_ud, RCU */
	struct xarray ahs;		/* number -> struct tqp_ah */
	struct hlist_node ud_node;	/* of the devices of its namespace, RCU; ud/net.c */
	struct ida pds;
	u32 next_qp;			/* xa_alloc_cyclic() */
	hsiphash_key_t qpn_key;		/* qpn.c */
	atomic_t nr_mws;
	struct list_head number_node;	/* number/find.c */
	bool leaving;			/* removal began: an attach must not wait on; its conn->wait is woken */
	unsigned long leave_by;		/* jiffies; when leaving: ends.c */
	bool removed;			/* under tqp_devices_mutex: unregister as soon as registered */
	bool dead;			/* same lock: the core let go */
	struct work_struct reap_work;
	u8 mac[ETH_ALEN];		/* of the netdev, or invented */
	struct tqp_counters __percpu *counters;	/* until the core let go */
};

struct tqp_ucontext {
	struct ib_ucontext ib;
	unsigned long wait_by;		/* jiffies; 0: nobody waits at an end; ends.c */
	unsigned long settle_wait_by;	/* the same, for TCP to hear of what the NIC has completed */
	unsigned long settle_by;	/* the same, of a process that exits */
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
	refcount_t refs;
	struct tqp_device *dev;
	struct tqp_ucontext *uctx;	/* until deregistered */
	u32 key;			/* lkey == rkey */
	bool live;			/* the key may be used: before, it is only taken */
	struct rhash_head node;		/* of dev->mrs */
	u32 pdn;
	int access;			/* IB_ACCESS_* */
	u64 iova;
	u64 bytes;
	struct ib_umem *umem;		/* user memory; NULL: a dma-buf */
	struct dma_buf *dmabuf;
	struct iosys_map vmap;		/* where the CPU has dmabuf mapped */
	struct page **pages;		/* [i]: pages of 1 << page_shift bytes, from iova rounded down */
	u32 nr_pages;
	u8 page_shift;
	bool offloaded;			/* the NIC knows the key; then one of the next two is set */
	bool given_up;			/* the NIC may write there for ever: it stays pinned */
	dma_addr_t *dma_pages;		/* of user memory: pages[] mapped for the offload device */
	struct ib_umem_dmabuf *dma_umem;	/* of a dma-buf: attached to the offload device */
	/* A dma-buf of a device's own memory, which that may take back (memory/mr_device.c). */
	struct dma_buf_attachment *attach;
	struct sg_table *sgt;		/* dma_resv; NULL: not mapped for the offload device */
	bool taken;			/* dma_resv */
	bool withdrawn;			/* taken_work waits for no driver any more */
	struct work_struct taken_work;	/* connections that send from it end */
	struct work_struct release_work;	/* unpinning sleeps */
	wait_queue_head_t unused;	/* refs fell to 1 */
	struct rcu_head rcu;
};

struct tqp_window;

struct tqp_mw {
	struct ib_mw ib;
	struct tqp_window *window;	/* what outlives the core's object for its readers */
};

/* What a NIC is told of a ring that it moves, too: nic_ring.c. */
struct tqp_nic_ring {
	dma_addr_t ctl_dma;
	dma_addr_t *pages;		/* of the ring that it knows */
	u32 nr_pages;
};

/* What a NIC has of a CQ that it writes to, too: cq_nic.c. */
struct tqp_cq_nic {
	struct tqp_offload_cq_ctl *ctl;	/* NULL: the NIC does not know it */
	struct tqp_nic_ring ring;
	u32 armed_at;			/* ctl->prod when an event was asked for */
	bool shared;			/* under cq->lock, too: it may write, so the ring is its owner's */
	bool refused;			/* never (again) */
	bool hangs;			/* under cq->lock: it owns the ring, and does not give it back */
};

struct tqp_cq {
	struct ib_cq ib;
	spinlock_t lock;
	struct tqp_ring *ring;
	struct mutex resizing;		/* outside lock; of nic, too */
	struct tqp_cq_fd *fd;		/* under lock; NULL until a descriptor was asked for */
	u8 notify;			/* enum ib_cq_notify_flags wanted; 0: not armed */
	bool overflown;
	struct tqp_cq_nic nic;
	u32 busy_us, busy_napi;		/* of the socket that a receive came from last, see cq_fd.c */
};

/* What the completion descriptors of a CQ share, and what is left of it for them when it goes. */
struct tqp_cq_fd {
	struct kref ref;		/* the CQ's, and each file's */
	wait_queue_head_t wait;
	spinlock_t lock;
	struct tqp_cq *cq;		/* under lock; NULL: destroyed */
	u32 rung_qpn, rung_index;	/* under lock: for whom it was rung last, 0: nobody, and its index */
	bool signalled;
};

/* What a NIC has of an SRQ that it takes receives from, too: srq_nic.c. */
struct tqp_srq_nic {
	struct mutex lock;		/* outside srq->lock */
	struct tqp_offload_srq_ctl *ctl;	/* NULL: the NIC does not know it */
	struct tqp_nic_ring ring;
	bool shared;			/* under srq->lock, too: it may take, so the ring is its owner's */
	bool refused;			/* never */
	bool hangs;			/* under srq->lock: it owns the ring, and does not give it back */
};

struct tqp_srq {
	struct ib_srq ib;
	spinlock_t lock;		/* the ring's consumer side, and limit */
	struct tqp_ring *ring;
	u32 max_sge;
	u32 limit;			/* 0: not armed */
	struct tqp_srq_nic nic;
};

struct tqp_qp {
	struct ib_qp ib;
	struct tqp_device *dev;
	struct tqp_pd *pd;
	struct tqp_ucontext *uctx;
	struct tqp_cq *scq, *rcq;
	struct tqp_ring *sq;
	struct tqp_ring *rq;		/* NULL: there is an srq */
	struct tqp_srq *srq;
	u32 qpn;
	struct ib_qp_cap cap;
	bool sq_sig_all;		/* every send completes visibly, or those with IB_SEND_SIGNALED */
	struct mutex mutex;
	spinlock_t lock;
	enum ib_qp_state state;		/* under lock */
	struct ib_qp_attr attr;		/* what query_qp returns, under lock; its qp_state is stale */
	struct tqp_conn *conn;		/* under lock; holds a conn reference; stays till detach */
	struct tqp_ud *ud;		/* of a UD QP, which has neither conn nor ep */
	struct tqp_ep *ep;		/* the connection manager's claim, under mutex; holds a reference */
	bool by_cm;			/* claimed since RESET, under mutex */
	bool gone;			/* being destroyed, under mutex: whoever waited for it must leave */
	struct tqp_number *number;	/* its connection by number, under lock and mutex; a reference */
	bool number_waits;		/* by number: no peer, (yet or any more); changes under mutex */
	bool psn_mismatch;		/* by number: the peer expects other messages; the same */
	bool bound;			/* a window of type 2; sk lock, until detached */
	kuid_t owner;			/* who created it */
	bool net_admin;			/* he may have larger send buffers than others */
	struct kref ref;		/* destroy waits for it */
	struct completion released;
};

/* What a WQE asks for */
struct tqp_op {
	bool known;
	bool untagged;			/* takes a receive of the peer's */
	bool request;			/* the peer responds */
	bool local;			/* no message: memory windows */
	bool invalidates;		/* its ex is a key, not an immediate */
	bool operands;			/* the WQE says more than what to send */
	bool trains;			/* several of one length may share segments */
	u8 bth_opcode;
	u8 wc_opcode;
};

#define TQP_TO(type, member)                                                     \
	static inline struct type *to_##type(struct ib_##member *ib)             \
	{                                                                        \
		return container_of(ib, struct type, ib);                        \
	}
TQP_TO(tqp_device, device)
TQP_TO(tqp_pd, pd)
TQP_TO(tqp_mr, mr)
TQP_TO(tqp_mw, mw)
TQP_TO(tqp_cq, cq)
TQP_TO(tqp_qp, qp)
TQP_TO(tqp_srq, srq)
TQP_TO(tqp_ucontext, ucontext)
#undef TQP_TO

static inline struct ib_ucontext *tqp_udata_context(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}

/*
 * Does the device serve @net?  In the core's shared mode it can be opened from every
 * network namespace, but what it sends and hears is its netdev's.
 */
static inline bool tqp_device_serves(const struct tqp_device *dev, const struct net *net)
{
	return net_eq(dev_net(dev->netdev), net) && rdma_dev_access_netns(&dev->ib, net);
}

/* Any context: one instruction on 64 bits, so neither an interrupt nor a move to another processor loses any. */
static inline void tqp_count(struct tqp_device *dev, enum tqp_counter c, u64 n)
{
	this_cpu_add(dev->counters->v[c], n);
}

/* ---- work.c ---- */
/* Unbound, for all that must sleep.  Never flush it from a destroy or detach: removal runs on it. */
extern struct workqueue_struct *tqp_wq;
/* The same for what ends: however many of these sleep, what moves data has its workers. */
extern struct workqueue_struct *tqp_end_wq;
int tqp_work_init(void);
/*
 * @work, which holds a reference while it is queued, runs as soon as it can; any context.
 * The caller has taken one for it: returns how many are left over, which he puts.
 */
u32 tqp_work_now(struct delayed_work *work);
void tqp_work_exit(void);

/* ---- address.c ---- */
bool tqp_netdev_has_ipv4(const struct net_device *netdev, __be32 address);	/* RCU read side */

/* ---- ends.c ---- */
void tqp_end_init(void);
/* Does somebody live on who may use again what he destroys here? */
bool tqp_end_must_wait(const struct tqp_device *dev);
/*
 * Until @over(@of), woken by @wait, or for @ms, or until no time is left
 * for objects of @uctx; process context, sleeps.  Is it over?
 */
bool tqp_end_wait(const struct tqp_device *dev, struct tqp_ucontext *uctx, wait_queue_head_t *wait,
		  bool (*over)(void *of), void *of, u32 ms);
/* The same for TQP_SETTLE_MS, also for a process that exits, there in all of a context. */
void tqp_end_settle(const struct tqp_device *dev, struct tqp_ucontext *uctx,
		    wait_queue_head_t *wait, bool (*over)(void *of), void *of);
/* Until all who found an object under RCU are through with it, if somebody must wait; sleeps. */
void tqp_end_readers(const struct tqp_device *dev);
/* A short one, if not too many were of late; sleeps. */
void tqp_end_grace_period(void);
/*
 * @err, of what destroys something in a NIC: does that not touch its memory any more?  Else it
 * must never be used again, and the log says so.
 */
bool tqp_end_is_forgotten(const struct tqp_device *dev, int err);

/* ---- stats.c ---- */
struct rdma_hw_stats *tqp_stats_alloc(struct ib_device *ib, u32 port);
int tqp_stats_get(struct ib_device *ib, struct rdma_hw_stats *stats, u32 port, int index);

/* ---- cq.c ---- */
int tqp_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *init,
		  struct uverbs_attr_bundle *attrs);
int tqp_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int tqp_resize_cq(struct ib_cq *ibcq, TQP_CQE_TYPE cqe, struct ib_udata *udata);
int tqp_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
/*
 * @count completions, each @wc but for its wr_id, and its length if there are
 * @lengths, which user space sees at once.  Any context.  A CQ without room for all is in error then, and an event raised.
 */
void tqp_cq_post_all(struct tqp_cq *cq, const struct ib_uverbs_wc *wc, const u64 *wr_ids,
		     const u32 *lengths, u32 count, bool solicited);

static inline void tqp_cq_post(struct tqp_cq *cq, const struct ib_uverbs_wc *wc, bool solicited)
{
	u64 wr_id = wc->wr_id;

	tqp_cq_post_all(cq, wc, &wr_id, NULL, 1, solicited);
}

/*
 * The same of one that a NIC may have written: the @number-th of those that @completed
 * counts, in order, by whoever owns the CQ.  False: it has, and who waits for it is woken.
 */
bool tqp_cq_post_claimed(struct tqp_cq *cq, const struct ib_uverbs_wc *wc, __le32 *completed,
			 u32 number);

/* Others than we have posted: wake who waits for it.  Any context. */
void tqp_cq_came(struct tqp_cq *cq, bool solicited);

/* ---- nic_ring.c ---- */
/* Whose a ring is that a NIC moves, too: any context, for a moment.  False: the NIC hangs. */
bool tqp_nic_own(__le32 *owner);
void tqp_nic_disown(__le32 *owner);
/* For a NIC: the control block, zeroed, or an error; sleeps. */
void *tqp_nic_ring_map(struct tqp_nic_ring *nic, const struct tqp_ring *ring,
		       struct tqp_device *dev);
void tqp_nic_ring_unmap(struct tqp_nic_ring *nic, void *ctl, struct tqp_device *dev);

/* ---- cq_nic.c ---- */
/* May a NIC write to it, from now on?  Sleeps. */
bool tqp_cq_share(struct tqp_cq *cq);
void tqp_cq_unshare(struct tqp_cq *cq);	/* never again; resizing, sleeps */
void tqp_cq_forget(struct tqp_cq *cq);	/* it goes; no QP is on it; sleeps */
/* Between these we alone write, and ring->index is right; cq->lock.  False: the NIC hangs. */
bool tqp_cq_take(struct tqp_cq *cq);
void tqp_cq_give(struct tqp_cq *cq);
/* In place of giving it back: nobody writes there any more, and the ring is ours alone; cq->lock. */
void tqp_cq_keep(struct tqp_cq *cq);
/* Somebody may sleep from now on, and looks at the ring once more; cq->lock. */
void tqp_cq_waits(struct tqp_cq *cq);
/* An armed event is raised; with @woken all who sleep by its descriptor are, next.  cq->lock. */
void tqp_cq_told(struct tqp_cq *cq, bool woken);
/* An event is armed, for what comes from now on; has anything come since?  cq->lock. */
void tqp_cq_mark(struct tqp_cq *cq);
bool tqp_cq_came_since(const struct tqp_cq *cq);

/* Completions that user space has not polled yet; cq->lock. */
static inline u32 tqp_cq_unpolled(const struct tqp_cq *cq)
{
	u32 cons;

	if (!cq->nic.shared)
		return tqp_ring_unpolled(cq->ring);
	/* user space stores it with release after it read the entries */
	cons = smp_load_acquire(&cq->ring->buf->consumer_index);
	return (le32_to_cpu(READ_ONCE(cq->nic.ctl->prod)) - cons) & cq->ring->mask;
}

void tqp_cq_fd_put(struct tqp_cq_fd *fd);
/* Something to take, or an end; any context, after the ring was written.  The CQ stays meanwhile. */
static inline void tqp_cq_fd_wake(struct tqp_cq_fd *fd)
{
	if (wq_has_sleeper(&fd->wait))	/* its barrier: they see the ring, or we see them */
		wake_up_poll(&fd->wait, EPOLLIN | EPOLLRDNORM);
}

/* The socket's lock: what comes next is likely to come from there, too. */
static inline void tqp_cq_came_from(struct tqp_cq *cq, const struct sock *sk)
{
#ifdef CONFIG_NET_RX_BUSY_POLL
	u32 us = READ_ONCE(sk->sk_ll_usec);

	if (likely(!us && !READ_ONCE(cq->busy_us)))
		return;
	WRITE_ONCE(cq->busy_napi, READ_ONCE(sk->sk_napi_id));
	WRITE_ONCE(cq->busy_us, us);
#endif
}

/* ---- srq.c ---- */
int tqp_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *udata);
int tqp_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int tqp_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		   struct ib_udata *udata);
int tqp_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int tqp_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad);
u32 tqp_srq_posted(const struct tqp_srq *srq);
/*
 * Copy the next receive out and take it, if @copy says so; any context.  False: there is
 * none, or it was not taken.
 */
typedef bool (*tqp_srq_copy_t)(const struct rxe_recv_wqe *wqe, u32 max_sge, void *to);
bool tqp_srq_take(struct tqp_srq *srq, tqp_srq_copy_t copy, void *to);
/* A NIC has taken some; any context. */
void tqp_srq_taken(struct tqp_srq *srq);

/* ---- srq_nic.c ---- */
/* May a NIC take from it, from now on?  Sleeps. */
bool tqp_srq_share(struct tqp_srq *srq);
void tqp_srq_forget(struct tqp_srq *srq);	/* it goes; no QP is on it; sleeps */
/* Between these we alone take, and ring->index is right; srq->lock.  False: the NIC hangs. */
bool tqp_srq_own(struct tqp_srq *srq);
void tqp_srq_disown(struct tqp_srq *srq);
/* Where the next receive is; any context. */
u32 tqp_srq_index(const struct tqp_srq *srq);

/* ---- op.c ---- */
enum {
	TQP_WR_OPCODES = 16,	/* enum ib_uverbs_wr_opcode ends before: rows of tqp_ops that none has are zero */
};

extern const struct tqp_op tqp_ops[TQP_WR_OPCODES];

/* NULL: there is no such opcode */
static inline const struct tqp_op *tqp_op_of(u32 wr_opcode)
{
	const struct tqp_op *op;

	if (wr_opcode >= TQP_WR_OPCODES)
		return NULL;
	op = &tqp_ops[array_index_nospec(wr_opcode, TQP_WR_OPCODES)];
	return op->known ? op : NULL;
}

/* enum ib_wc_opcode of a send's enum ib_wr_opcode; of what is none, a SEND's. */
u32 tqp_wc_opcode(u32 wr_opcode);

/* ---- qpn.c ---- */
u32 tqp_qpn_of(const struct tqp_device *dev, u32 index);
u32 tqp_qpn_index(const struct tqp_device *dev, u32 qpn);	/* 0: no QP has this number */

/* ---- qp.c ---- */
struct tqp_qp *tqp_qp_get(struct tqp_qp *qp);
/* With a reference, or NULL; any context. */
struct tqp_qp *tqp_qp_lookup(struct tqp_device *dev, u32 qpn);
/* By tqp_qpn_index(), for who has it already: that costs as much as all else. */
struct tqp_qp *tqp_qp_at(struct tqp_device *dev, u32 index);
void tqp_qp_put(struct tqp_qp *qp);
enum ib_qp_state tqp_qp_state(struct tqp_qp *qp);
/* How long all tries of a send to a peer that does not answer take; U64_MAX: it is tried for ever. */
u64 tqp_qp_retries_ms(struct tqp_qp *qp);
/* Move to RTS (from any state below) after a successful attach; process context. */
void tqp_qp_connected(struct tqp_qp *qp);
/*
 * Move to ERR; any context, idempotent.  Raises @event once if @event >= 0.
 * The caller (conn) flushes under the socket lock with tqp_qp_flush().
 */
bool tqp_qp_error(struct tqp_qp *qp, int event);
/* An event of the QP's, to whoever listens; any context. */
void tqp_qp_raise(struct tqp_qp *qp, enum ib_event_type type);
/* May what is posted be sent? */
static inline bool tqp_qp_may_send(const struct tqp_qp *qp)
{
	/* pairs with tqp_qp_transit(): RTS comes with its sequence number */
	return smp_load_acquire(&qp->state) == IB_QPS_RTS && !READ_ONCE(qp->psn_mismatch);
}

/* Complete every posted WQE of both rings with IB_WC_WR_FLUSH_ERR.  Ring owner's context. */
void tqp_qp_flush(struct tqp_qp *qp);
/* The same, but the oldest send's status is IB_WC_RETRY_EXC_ERR. */
void tqp_qp_flush_unreachable(struct tqp_qp *qp);
/* The same of the send queue alone. */
void tqp_qp_flush_sends(struct tqp_qp *qp);

#endif
