// SPDX-License-Identifier: GPL-2.0
/* What the device says of itself, its port and its addresses. */
#include <linux/ethtool.h>
#include <linux/inetdevice.h>
#include <net/addrconf.h>
#include <rdma/ib_mad.h>
#include "device/device.h"
#include "ud/ud.h"

enum {
	TQP_PORT = 1,
	TQP_GIDS = 1,
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
		.atomic_cap = IB_ATOMIC_GLOB,	/* with the CPU and with other QPs */
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

static bool tqp_netdev_ipv4(struct net_device *netdev, __be32 *addr)
{
	const struct in_ifaddr *ifa = NULL;
	struct in_device *in_dev;

	rcu_read_lock();
	in_dev = __in_dev_get_rcu(netdev);
	if (in_dev)
		ifa = rcu_dereference(in_dev->ifa_list);
	if (ifa)
		*addr = ifa->ifa_local;
	rcu_read_unlock();
	return ifa;
}

/* The first IPv4 address, mapped; without one the link local IPv6 address of the MAC. */
int tqp_query_gid(struct ib_device *ib, u32 port, int index, union ib_gid *gid)
{
	struct tqp_device *dev = to_tqp_device(ib);
	__be32 addr;

	if (index >= TQP_GIDS)
		return -EINVAL;
	if (tqp_netdev_ipv4(dev->netdev, &addr)) {
		ipv6_addr_set_v4mapped(addr, (struct in6_addr *)gid->raw);
		return 0;
	}
	gid->global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
	addrconf_addr_eui48(gid->raw + 8, (const char *)dev->mac);
	return 0;
}

int tqp_query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	if (index >= TQP_PKEYS)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}
