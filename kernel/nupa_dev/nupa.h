/* SPDX-License-Identifier: GPL-2.0 */
/*
 * nupa_dev: the driver of one port of a NUPA switch.
 *
 *   nupa_dev      one PCI function, one netdev
 *     nupa_admin  the command ring (admin.c)
 *     nupa_queue  one transmit ring, one receive ring, one NAPI, one vector
 *     qp          the auxiliary device that tcp_qp binds to (qp.c)
 *
 * States.  A port works until nupa_fail(): the switch broke or refused the
 * ABI, or does not answer.  From then on every new command returns -EIO, every
 * packet is dropped, the carrier is off, and the recover work takes over: it
 * lets go of all QPs, resets the port and, if the switch acknowledges, starts
 * it again.  A port that does not acknowledge its reset stays dead (netdev
 * detached) until it is bound again.
 *
 * Locks, outermost first:
 *   RTNL               open, stop, rings, channels, reset
 *   the netdev's lock  all of these, rules, RSS, exchange of receive rings;
 *                      RTNL itself on kernels that have none (compat.h)
 *   nupa_hbm_lock      windows to memory of other devices (sleeps)
 *   nupa->mode_lock    order of RX_MODE commands (sleeps)
 *   nupa->stats_lock   the DMA buffer of the counters (sleeps)
 *   admin->lock        the command ring (sleeps)
 *   netdev queue lock  producer side of a transmit ring
 *   tx->clean_lock     consumer side of a transmit ring
 * A receive ring belongs to its NAPI.
 */
#ifndef NUPA_H
#define NUPA_H

#include <linux/bitops.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/interrupt.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/rtnetlink.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <tcp_qp/nupa_hw.h>
#include "compat.h"
#include "queue.h"

#define NUPA_NAME "nupa_dev"

enum {
	NUPA_RESET_TIMEOUT_MS = 3000,
	NUPA_RESET_POLL_US = 200,
	NUPA_RECOVER_INTERVAL_MS = 5000,	/* between two recoveries */
	NUPA_FORGET_MS = 1000,		/* after a failure, for its reset; then memory is given up */
	NUPA_FORGET_POLL_MS = 5,
	/* after a failure, for its reset, which may wait for its turn first: then the port is dead */
	NUPA_CREATE_MS = NUPA_RECOVER_INTERVAL_MS + NUPA_RESET_TIMEOUT_MS,
	NUPA_WATCHDOG_MS = 5000,
	NUPA_DRAIN_MS = 1000,		/* for one transmit ring, before a window goes */
	NUPA_DRAIN_POLL_US = 100,
	NUPA_BEATS_LINK = 2,		/* after so many missed heartbeats there is no carrier */
	NUPA_BEATS_DEAD = 3,		/* after so many the port has failed */
	NUPA_HEAL_MS = 5000,		/* within this a switch restores its registers */
	NUPA_HEAL_POLL_MS = 50,
	NUPA_TX_ENTRIES_DEFAULT = 2048,
	NUPA_RX_ENTRIES_DEFAULT = 2048,
	NUPA_RX_BUF_BYTES_DEFAULT = PAGE_SIZE,
	NUPA_RX_LONG_BUF_BYTES = NUPA_RX_BUF_MAX_BYTES,
	NUPA_RX_LONG_ENTRIES_MIN = 64,		/* of a queue, by default: 4 MiB */
	NUPA_RX_LONG_ENTRIES_USUAL = 256,	/* where memory is not scarce */
	NUPA_RX_LONG_RAM_SHARE = 64,
	NUPA_RX_LONG_ENTRIES_MAX = 1024,
	NUPA_RX_HOLD_US_DEFAULT = 64,
	NUPA_ZERO_ORDER_MIN = 4,	/* MAX_SKB_FRAGS of them hold the longest placed run */
	NUPA_ZERO_ORDER_MAX = 6,	/* fewer fragments for it */
};

/* ethtool's private flags */
enum {
	NUPA_PRIV_TX_WATCH,
	NUPA_PRIV_COUNT,
};

enum nupa_state {
	NUPA_S_FAILED,		/* no command and no packet until it was reset */
	NUPA_S_RECOVERS,	/* a failure starts the recover work */
	NUPA_S_ENABLED,		/* the switch should say READY */
	NUPA_S_SILENT,		/* heartbeats are missing */
	NUPA_S_RESET,		/* what the switch was asked last, by control_gen, is a reset */
};

struct nupa_admin {
	struct mutex lock;
	wait_queue_head_t wait;		/* vector 0 */
	struct nupa_admin_ctl *ctl;
	struct nupa_admin_cmd *cmds;
	struct nupa_admin_comp *comps;
	dma_addr_t cmds_dma, comps_dma;
	u32 prod;
};

struct nupa_rss {
	u8 key[NUPA_RSS_KEY_BYTES];
	u8 table[NUPA_RSS_TABLE_ENTRIES];
};

struct nupa_qp_dev;

struct nupa_dev {
	struct pci_dev *pdev;
	struct net_device *netdev;
	void __iomem *bar0;
	void *bar2;			/* plain memory that the switch maps too */
	struct nupa_regs *regs;
	struct nupa_admin admin;
	unsigned long state;		/* enum nupa_state */
	const char *failure;		/* why, for debugfs */
	unsigned long failed_at;	/* jiffies */

	/* what the switch said at probe */
	u32 features;
	u16 queues_max;			/* also bounded by vectors */

	/* what is wanted; the netdev's lock */
	u16 nr_queues;
	u32 tx_entries, rx_entries, rx_buf_bytes;
	u32 rx_long_entries;		/* 0: no long buffers */
	u16 rx_hold_us;			/* also read under mode_lock */
	bool strict_split;
	bool tx_watch;			/* the switch may look at transmit indices without doorbells */
	struct nupa_rss rss;
	struct xarray rules;		/* location -> struct ethtool_rx_flow_spec */

	bool up;			/* queues exist; written under the netdev's lock */
	bool quiet;			/* the switch let go of our memory; the netdev's lock */
	struct nupa_queue *queues;	/* [queues_max], for the device's life: counters */
	struct page *zero_page;		/* stands for placed payload */
	u32 zero_bytes;

	struct mutex mode_lock;
	struct work_struct mode_work;
	unsigned int run4_told;		/* gro_ipv4_max_size, as the switch was told last */
	struct delayed_work recover_work;
	struct delayed_work beat_work;
	u32 beat, beats_missed;		/* beat_work only */
	unsigned long recovered_at;	/* jiffies; recover_work only */
	u32 recoveries;

	struct mutex stats_lock;
	__le64 *stats;			/* [NUPA_STAT_COUNT + NUPA_QP_STAT_COUNT] */
	dma_addr_t stats_dma;

	struct list_head hbm_node;	/* hbm.c: its lock */
	struct {
		u64 base, end;		/* end 0: the switch has none; read without the lock */
	} windows[NUPA_WINDOWS_MAX];

	struct mutex qp_lock;		/* qp_dev; taken by probe, remove and recover_work alone */
	struct nupa_qp_dev *qp_dev;
	struct xarray cqs;		/* number -> struct nupa_cq, under its lock */
	struct dentry *debugfs;
};

/* BAR2 is shared with another CPU, not with a device: virt_*() barriers order it. */
static inline u32 nupa_get(const __le32 *p)
{
	return le32_to_cpu(READ_ONCE(*p));
}

static inline u32 nupa_get_acquire(const __le32 *p)
{
	/* the switch stores it with release after what it covers */
	return le32_to_cpu(virt_load_acquire(p));
}

static inline void nupa_put(__le32 *p, u32 v)
{
	WRITE_ONCE(*p, cpu_to_le32(v));
}

static inline void nupa_put_release(__le32 *p, u32 v)
{
	/* after what it covers: the switch loads it with acquire */
	virt_store_release(p, cpu_to_le32(v));
}

static inline void nupa_doorbell(struct nupa_dev *nupa, u16 vector)
{
	writel(NUPA_PEER_SWITCH << 16 | vector, nupa->bar0 + NUPA_BAR0_DOORBELL);
}

static inline bool nupa_failed(const struct nupa_dev *nupa)
{
	return test_bit(NUPA_S_FAILED, &nupa->state);
}

static inline struct device *nupa_device(struct nupa_dev *nupa)
{
	return &nupa->pdev->dev;
}

/* ---- control.c: reset, enable, link, failure ---- */
/* 0: the switch forgot all queues, MRs and QPs, and touches no memory of ours. */
int nupa_reset(struct nupa_dev *nupa);
int nupa_enable(struct nupa_dev *nupa);
void nupa_link_update(struct nupa_dev *nupa);		/* any context */
irqreturn_t nupa_event_isr(int irq, void *data);
/* Declare the port failed; any context, idempotent.  @why is a literal. */
void nupa_fail(struct nupa_dev *nupa, const char *why);
/* The switch has ended, and said so: nothing of ours is in its hands. */
bool nupa_switch_gone(const struct nupa_dev *nupa);
void nupa_recover_init(struct nupa_dev *nupa);
void nupa_recover_start(struct nupa_dev *nupa);
void nupa_recover_stop(struct nupa_dev *nupa);

/* ---- beat.c: is the switch alive? ---- */
void nupa_beat_init(struct nupa_dev *nupa);
void nupa_beat_start(struct nupa_dev *nupa);
void nupa_beat_stop(struct nupa_dev *nupa);

/* ---- admin.c ---- */
int nupa_admin_alloc(struct nupa_dev *nupa);
void nupa_admin_free(struct nupa_dev *nupa);
void nupa_admin_restart(struct nupa_dev *nupa);		/* between reset and enable */
/*
 * Submit one command and sleep for its completion; @comp may be NULL.
 * 0, or what the switch answered as -errno, or -EIO (the port had failed: it was told
 * nothing), or -ETIMEDOUT (no answer, and the port has failed: until it was reset the
 * switch may still carry the command out).
 */
int nupa_admin_submit(struct nupa_dev *nupa, const struct nupa_admin_cmd *cmd,
		      struct nupa_admin_comp *comp);
int nupa_admin_simple(struct nupa_dev *nupa, enum nupa_admin_op op, u32 id);

/* ---- netdev.c ---- */
struct net_device *nupa_netdev_alloc(struct pci_dev *pdev, const struct nupa_regs *regs,
				     u16 queues_max);
int nupa_netdev_init(struct nupa_dev *nupa);
void nupa_netdev_exit(struct nupa_dev *nupa);
/* Change what nupa_up() reads, by @change(@arg), with the queues down; RTNL and the netdev's lock. */
int nupa_restart(struct nupa_dev *nupa, void (*change)(struct nupa_dev *nupa, const void *arg),
		 const void *arg);
/* What to do with a port that failed, before and after its queue pairs went; RTNL and the netdev's lock. */
void nupa_netdev_halt(struct nupa_dev *nupa);
int nupa_netdev_recover(struct nupa_dev *nupa);
int nupa_mode_apply(struct nupa_dev *nupa, netdev_features_t features);

/* Nobody tells a driver of a new gro_ipv4_max_size, so NAPI looks. */
static inline void nupa_mode_look(struct nupa_dev *nupa)
{
	if (unlikely(READ_ONCE(nupa->netdev->gro_ipv4_max_size) != READ_ONCE(nupa->run4_told)))
		schedule_work(&nupa->mode_work);
}

/* ---- rss.c, steer.c ---- */
void nupa_rss_init(struct nupa_dev *nupa);
void nupa_rss_spread(struct nupa_dev *nupa);	/* default table for nr_queues, unless the user set one */
int nupa_rss_apply(struct nupa_dev *nupa);
int nupa_rxfh_get(struct net_device *dev, struct ethtool_rxfh_param *rxfh);
int nupa_rxfh_set(struct net_device *dev, struct ethtool_rxfh_param *rxfh,
		  struct netlink_ext_ack *extack);
u32 nupa_rx_rings(struct net_device *dev);
int nupa_rxnfc_get(struct net_device *dev, struct ethtool_rxnfc *cmd, u32 *locations);
int nupa_rxnfc_set(struct net_device *dev, struct ethtool_rxnfc *cmd);
int nupa_steer_apply(struct nupa_dev *nupa);	/* all rules, after the queues were created */
void nupa_steer_purge(struct nupa_dev *nupa);
bool nupa_steer_uses(struct nupa_dev *nupa, u16 first_queue);

/* ---- stats.c ---- */
int nupa_stats_alloc(struct nupa_dev *nupa);
void nupa_stats_free(struct nupa_dev *nupa);
extern const struct netdev_stat_ops nupa_stat_ops;
void nupa_stats64(struct net_device *dev, struct rtnl_link_stats64 *out);
/* @op is NUPA_ADMIN_STATS, or QP_STATS with @id = qpn */
int nupa_stats_count(struct net_device *dev, int set);
void nupa_stats_strings(struct net_device *dev, u32 set, u8 *data);
void nupa_stats_get(struct net_device *dev, struct ethtool_stats *stats, u64 *data);

/* ---- hbm.c: windows to memory of other devices ---- */
int nupa_hbm_init(void);
void nupa_hbm_exit(void);
void nupa_hbm_port_add(struct nupa_dev *nupa);		/* it is enabled */
void nupa_hbm_port_remove(struct nupa_dev *nupa);
void nupa_hbm_enabled(struct nupa_dev *nupa);		/* after a reset: the switch forgot them */
/* Does the switch know memory of another device at this bus address? */
bool nupa_hbm_reaches(const struct nupa_dev *nupa, dma_addr_t addr, u32 bytes);
/* ... or of the host? */
bool nupa_reaches(const struct nupa_dev *nupa, dma_addr_t addr, u32 bytes);

/* ---- qp.c, ethtool.c, debugfs.c ---- */
/* Somebody may sleep until a completion comes in that queue, and one has; any context. */
void nupa_cq_came(struct nupa_dev *nupa, u32 id);
int nupa_qp_add(struct nupa_dev *nupa);		/* 0 when the switch has no QPs, too */
void nupa_qp_remove(struct nupa_dev *nupa);	/* returns once tcp_qp let go of everything */
extern const struct ethtool_ops nupa_ethtool_ops;
void nupa_debugfs_init(void);
void nupa_debugfs_exit(void);
void nupa_debugfs_add(struct nupa_dev *nupa);
void nupa_debugfs_remove(struct nupa_dev *nupa);

#endif
