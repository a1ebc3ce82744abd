/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that nupa_dev builds for: 6.12 and the
 * newest that Debian serves (docs/kernels.md).
 *
 * The code is written for the newest one; older kernels are given its names.
 * The version at each difference is the one that brought it; "by 7.2" means
 * that 7.2 has it, and which kernel after 6.12 had it first was not looked up.
 */
#ifndef NUPA_COMPAT_H
#define NUPA_COMPAT_H

#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/version.h>
#include <net/page_pool/helpers.h>

#define NUPA_KERNEL_BEFORE(major, minor) (KERNEL_VERSION(major, minor, 0) > LINUX_VERSION_CODE)

/*
 * 6.15: a netdev with queue_mgmt_ops is configured under a lock of its own,
 * which is inside RTNL; RSS, rules and the exchange of rings have that alone.
 * Its holder calls functions that do not take it.  Before, all is under RTNL.
 */
#if NUPA_KERNEL_BEFORE(6, 15)
static inline void netdev_lock(struct net_device *dev)
{
	ASSERT_RTNL();
}

static inline void netdev_unlock(struct net_device *dev)
{
	ASSERT_RTNL();
}

static inline void netdev_assert_locked(const struct net_device *dev)
{
	ASSERT_RTNL();
}

#define napi_enable_locked napi_enable
#define napi_disable_locked napi_disable
#define netif_napi_add_locked netif_napi_add
#define netif_napi_del_locked netif_napi_del
#define netif_napi_set_irq_locked netif_napi_set_irq
#define netif_close dev_close
#else
#include <net/netdev_lock.h>
#endif

/* By 7.2: ethtool's calls of such a netdev come without RTNL, but for what is named. */
#if NUPA_KERNEL_BEFORE(7, 0)
#define NUPA_ETHTOOL_RTNL
#else
/* The number of queues changes, or the state of the link is brought up to date. */
#define NUPA_ETHTOOL_RTNL                                                                     \
	.op_needs_rtnl = ETHTOOL_OP_NEEDS_RTNL_SCHANNELS | ETHTOOL_OP_NEEDS_RTNL_SRINGPARAM | \
			 ETHTOOL_OP_NEEDS_RTNL_GLINK,
#endif

/* By 7.2: how many receive rings there are is asked for apart from the rules. */
#if NUPA_KERNEL_BEFORE(7, 0)
#define NUPA_ETHTOOL_RX_RINGS
#else
#define NUPA_ETHTOOL_RX_RINGS .get_rx_ring_count = nupa_rx_rings,
#endif

/* By 7.2: such a netdev is told of its addresses and modes where it may sleep. */
#if NUPA_KERNEL_BEFORE(7, 0)
#define ndo_set_rx_mode_async ndo_set_rx_mode
#define NUPA_RX_MODE_TYPE void
#define NUPA_RX_MODE_PARAMS struct net_device *dev
#define NUPA_RX_MODE_OK
#else
#define NUPA_RX_MODE_TYPE int
#define NUPA_RX_MODE_PARAMS \
	struct net_device *dev, struct netdev_hw_addr_list *uc, struct netdev_hw_addr_list *mc
#define NUPA_RX_MODE_OK 0
#endif

/* By 7.2: whoever exchanges rings is told of what was configured for the queue. */
#if NUPA_KERNEL_BEFORE(7, 0)
#define NUPA_QUEUE_CONFIG
#else
#define NUPA_QUEUE_CONFIG struct netdev_queue_config *config,
#endif

/* By 7.2: from how much payload on headers are split off; ours split all or none. */
#if NUPA_KERNEL_BEFORE(7, 0)
#define NUPA_RING_USE_HDS_THRS 0
#else
#define NUPA_RING_USE_HDS_THRS ETHTOOL_RING_USE_HDS_THRS
#endif

/* By 7.2: pools say whether their memory can be read, and can be given to a NAPI. */
#if NUPA_KERNEL_BEFORE(7, 0)
static inline bool page_pool_is_unreadable(struct page_pool *pool)
{
	return pool->mp_ops;
}

/* Only while NAPI is disabled.  Its opposite is page_pool_disable_direct_recycling(). */
static inline void page_pool_enable_direct_recycling(struct page_pool *pool,
						     struct napi_struct *napi)
{
	WRITE_ONCE(pool->p.napi, napi);
}
#endif

/* 6.16: device memory is sent from, too; by 7.2 a netdev says how it reaches it. */
#if NUPA_KERNEL_BEFORE(7, 0)
#define NUPA_DEVICE_MEMORY_TX false
static inline void nupa_offer_device_memory_tx(struct net_device *dev)
{
}
#else
#define NUPA_DEVICE_MEMORY_TX true
static inline void nupa_offer_device_memory_tx(struct net_device *dev)
{
	dev->netmem_tx = NETMEM_TX_DMA;
}
#endif

#endif
