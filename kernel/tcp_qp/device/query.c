// SPDX-License-Identifier: GPL-2.0
/* What the device says of itself, its port and its addresses. */
#include <linux/ethtool.h>
#include <linux/inetdevice.h>
#include <net/addrconf.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include "device/device.h"
#include "ud/ud.h"

enum {
	TQP_PORT = 1,
	TQP_GIDS = 16,
	TQP_PKEYS = 1,
	TQP_VENDOR_ID = 0xffffff,	/* no vendor's, as rxe says; programs want one that is not 0 */
};

int tqp_query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata)
{
	if (udata && (udata->inlen || udata->outlen))	/* 7.3: the RDMA core itself asks without */
		return -EINVAL;
	*attr = (struct ib_device_attr){
		.fw_ver = (u64)TCP_QP_ABI_VERSION << 32,
		.sys_image_guid = ib->node_guid,
		.max_mr_size = 1ULL << TQP_MR_MAX_BYTES_LOG2,
		.page_size_cap = PAGE_SIZE,
		.vendor_id = TQP_VENDOR_ID,
		.max_qp = TQP_QP_MAX,
		.max_qp_wr = TQP_WR_MAX,
		.max_send_sge = TQP_SGE_MAX,
		.max_recv_sge = TQP_SGE_MAX,
		.max_cq = TQP_CQ_MAX,
		.max_cqe = TQP_CQE_MAX,
		.max_mr = TQP_MR_MAX,
		.max_mw = TQP_MW_MAX,
		.device_cap_flags = IB_DEVICE_MEM_WINDOW | IB_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_pd = TQP_PD_MAX,
		.max_ah = tqp_ud_port() ? TQP_UD_AH_MAX : 0,
		.max_srq = TQP_SRQ_MAX,
		.max_srq_wr = TQP_WR_MAX,
		.max_srq_sge = TQP_SGE_MAX,
		.max_pkeys = TQP_PKEYS,
		.max_sge_rd = TQP_SGE_MAX,
		.max_qp_rd_atom = TQP_RD_ATOMIC_MAX,
		.max_qp_init_rd_atom = TQP_RD_ATOMIC_MAX,
		.max_res_rd_atom = TQP_RD_ATOMIC_MAX * TQP_QP_MAX,
		.atomic_cap = IB_ATOMIC_HCA,	/* with the CPU, too; UCX knows no other word than this */
		.masked_atomic_cap = IB_ATOMIC_NONE,
		.kernel_cap_flags = IBK_ALLOW_USER_UNREG,	/* rdma link del */
	};
	return 0;
}

static u8 tqp_port_phys_state(const struct net_device *netdev)
{
	if (!netif_running(netdev))
		return IB_PORT_PHYS_STATE_DISABLED;
	return netif_carrier_ok(netdev) ? IB_PORT_PHYS_STATE_LINK_UP : IB_PORT_PHYS_STATE_POLLING;
}

/*
 * Many software netdevs tell no speed, and asking the core then would log a
 * warning each time.  One that is leaving tells none either.
 */
static void tqp_port_speed(struct ib_device *ib, struct net_device *netdev,
			   struct ib_port_attr *attr)
{
	if (netdev->ethtool_ops && netdev->ethtool_ops->get_link_ksettings &&
	    !ib_get_eth_speed(ib, TQP_PORT, &attr->active_speed, &attr->active_width))
		return;
	attr->active_speed = IB_SPEED_SDR;
	attr->active_width = IB_WIDTH_1X;
}

int tqp_query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	struct net_device *netdev = to_tqp_device(ib)->netdev;

	attr->phys_state = tqp_port_phys_state(netdev);
	attr->state = attr->phys_state == IB_PORT_PHYS_STATE_LINK_UP ? IB_PORT_ACTIVE :
								       IB_PORT_DOWN;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = tqp_ud_mtu(to_tqp_device(ib));
	attr->gid_tbl_len = TQP_GIDS;
	attr->pkey_tbl_len = TQP_PKEYS;
	attr->max_msg_sz = TQP_MESSAGE_MAX_BYTES;
	attr->max_vl_num = 1;
	tqp_port_speed(ib, netdev, attr);
	return 0;
}

/* iWARP, so that rdma_cm goes through iw_cm and the core makes no RoCE addresses. */
int tqp_port_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = TQP_GIDS;
	immutable->pkey_tbl_len = TQP_PKEYS;
	immutable->core_cap_flags = RDMA_CORE_PORT_IWARP;
	return 0;
}

enum rdma_link_layer tqp_link_layer(struct ib_device *ib, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

/*
 * Instead of ib_device_set_netdev(): rdma_rxe takes every device that has both
 * its driver id and a netdev set that way for its own struct.
 */
struct net_device *tqp_get_netdev(struct ib_device *ib, u32 port)
{
	struct net_device *netdev = to_tqp_device(ib)->netdev;

	dev_hold(netdev);
	return netdev;
}

/*
 * The table of GIDs: the netdev's addresses, IPv4 mapped and first, so that index 0
 * is one where there is one.  The core asks for one index after another, and reads all
 * again at IB_EVENT_GID_CHANGE.
 */

/* The @index-th IPv4 address; false, with how many there are taken off *@index: no such. */
static bool tqp_gid_ipv4(const struct net_device *netdev, int *index, union ib_gid *gid)
{
	const struct in_device *in_dev = __in_dev_get_rcu(netdev);
	const struct in_ifaddr *ifa;

	if (!in_dev)
		return false;
	in_dev_for_each_ifa_rcu(ifa, in_dev) {
		if ((*index)--)
			continue;
		ipv6_addr_set_v4mapped(ifa->ifa_local, (struct in6_addr *)gid->raw);
		return true;
	}
	return false;
}

#if IS_ENABLED(CONFIG_IPV6)
/* Tentative ones, too: nobody tells us when they are that no more. */
static bool tqp_gid_ipv6(const struct net_device *netdev, int *index, union ib_gid *gid)
{
	const struct inet6_dev *in6_dev = __in6_dev_get(netdev);
	const struct inet6_ifaddr *ifa;

	if (!in6_dev)
		return false;
	list_for_each_entry_rcu(ifa, &in6_dev->addr_list, if_list) {
		if (ifa->flags & IFA_F_DADFAILED || (*index)--)
			continue;
		memcpy(gid->raw, &ifa->addr, sizeof(gid->raw));
		return true;
	}
	return false;
}
#else
static bool tqp_gid_ipv6(const struct net_device *netdev, int *index, union ib_gid *gid)
{
	return false;
}
#endif

/* Without any address rdma_cm still wants to see one GID: the link local one of the MAC. */
static void tqp_gid_of_mac(const struct tqp_device *dev, union ib_gid *gid)
{
	gid->global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
	addrconf_addr_eui48(gid->raw + 8, (const char *)dev->mac);
}

int tqp_query_gid(struct ib_device *ib, u32 port, int index, union ib_gid *gid)
{
	const struct tqp_device *dev = to_tqp_device(ib);
	int at = index;

	if (index < 0 || index >= TQP_GIDS)
		return -EINVAL;
	memset(gid, 0, sizeof(*gid));	/* the core skips these */
	rcu_read_lock();
	if (!tqp_gid_ipv4(dev->netdev, &at, gid) && !tqp_gid_ipv6(dev->netdev, &at, gid) && !index)
		tqp_gid_of_mac(dev, gid);
	rcu_read_unlock();
	return 0;
}

bool tqp_gids_are_read(struct ib_device *ib)
{
	union ib_gid now, read;

	for (int i = 0; i < TQP_GIDS; i++) {
		tqp_query_gid(ib, TQP_PORT, i, &now);
		if (rdma_query_gid(ib, TQP_PORT, i, &read))
			read = zgid;	/* it has skipped that one */
		if (memcmp(&now, &read, sizeof(now)))
			return false;
	}
	return true;
}

int tqp_query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	if (index >= TQP_PKEYS)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}
