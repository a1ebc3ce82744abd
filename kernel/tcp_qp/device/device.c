// SPDX-License-Identifier: GPL-2.0
/* The RDMA device: its table of operations, and one instance before it is registered. */
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <net/addrconf.h>
#include "cm/cm.h"
#include "control/control.h"
#include "device/device.h"
#include "memory/memory.h"
#include "ud/ud.h"

static char *node_type = "ca";
module_param(node_type, charp, 0444);
MODULE_PARM_DESC(node_type,
		 "ca (default), or rnic: what user space takes the device for; the port is iWARP's either way");

static int tqp_alloc_ucontext(struct ib_ucontext *uctx, struct ib_udata *udata)
{
	return 0;
}

static void tqp_dealloc_ucontext(struct ib_ucontext *uctx)
{
}

/*
 * uverbs destroys the context's objects itself.  Being here says that this is
 * all there is to it, so a device may go while contexts are open: rings stay
 * mapped, nobody fills them.
 */
static void tqp_disassociate_ucontext(struct ib_ucontext *uctx)
{
}

static int tqp_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	int pdn = ida_alloc_range(&to_tqp_device(ibpd->device)->pds, 1, TQP_PD_MAX, GFP_KERNEL);

	if (pdn < 0)
		return pdn;
	to_tqp_pd(ibpd)->pdn = pdn;
	return 0;
}

static int tqp_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	ida_free(&to_tqp_device(ibpd->device)->pds, to_tqp_pd(ibpd)->pdn);
	return 0;
}

/*
 * Queues of kernel users: refused.  The operations must be there, or the core
 * takes the device for one that rdma_cm can't use.
 */
static struct ib_mr *tqp_get_dma_mr(struct ib_pd *ibpd, int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static int tqp_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
			 const struct ib_recv_wr **bad)
{
	*bad = wr;
	return -EOPNOTSUPP;
}

static int tqp_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc)
{
	return -EOPNOTSUPP;
}

static const struct ib_device_ops tqp_device_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_RXE,
	.uverbs_abi_ver = TQP_UVERBS_ABI_VERSION,

	.alloc_hw_port_stats = tqp_stats_alloc,
	.alloc_mw = tqp_alloc_mw,
	.alloc_pd = tqp_alloc_pd,
	.alloc_ucontext = tqp_alloc_ucontext,
	.create_cq = tqp_create_cq,
	.create_qp = tqp_create_qp,
	.create_srq = tqp_create_srq,
	.create_user_ah = tqp_create_user_ah,
	.dealloc_driver = tqp_link_dealloc,
	.dealloc_mw = tqp_dealloc_mw,
	.dealloc_pd = tqp_dealloc_pd,
	.dealloc_ucontext = tqp_dealloc_ucontext,
	.dereg_mr = tqp_dereg_mr,
	.destroy_ah = tqp_destroy_ah,
	.destroy_cq = tqp_destroy_cq,
	.destroy_qp = tqp_destroy_qp,
	.destroy_srq = tqp_destroy_srq,
	.disassociate_ucontext = tqp_disassociate_ucontext,
	.fill_res_cq_entry = tqp_fill_res_cq,
	.fill_res_mr_entry = tqp_fill_res_mr,
	.fill_res_qp_entry = tqp_fill_res_qp,
	.get_dma_mr = tqp_get_dma_mr,
	.get_hw_stats = tqp_stats_get,
	.get_link_layer = tqp_link_layer,
	.get_netdev = tqp_get_netdev,
	.get_port_immutable = tqp_port_immutable,
	.iw_accept = tqp_cm_accept,
	.iw_add_ref = tqp_cm_add_ref,
	.iw_connect = tqp_cm_connect,
	.iw_create_listen = tqp_cm_create_listen,
	.iw_destroy_listen = tqp_cm_destroy_listen,
	.iw_get_qp = tqp_cm_get_qp,
	.iw_reject = tqp_cm_reject,
	.iw_rem_ref = tqp_cm_rem_ref,
	.mmap = tqp_ring_mmap,
	.mmap_free = tqp_ring_mmap_free,
	.modify_qp = tqp_modify_qp,
	.modify_srq = tqp_modify_srq,
	.poll_cq = tqp_poll_cq,
	.post_recv = tqp_post_recv,
	.post_send = tqp_post_send,
	.post_srq_recv = tqp_post_srq_recv,
	.query_device = tqp_query_device,
	.query_gid = tqp_query_gid,
	.query_pkey = tqp_query_pkey,
	.query_port = tqp_query_port,
	.query_qp = tqp_query_qp,
	.query_srq = tqp_query_srq,
	.reg_user_mr = tqp_reg_user_mr,
	.reg_user_mr_dmabuf = tqp_reg_dmabuf_mr,
	.req_notify_cq = tqp_req_notify_cq,
	.resize_user_cq = tqp_resize_cq,

	INIT_RDMA_OBJ_SIZE(ib_ah, tqp_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, tqp_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_mw, tqp_mw, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, tqp_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, tqp_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_srq, tqp_srq, ib),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, tqp_ucontext, ib),
};

int tqp_device_check_params(void)
{
	return strcmp(node_type, "rnic") && strcmp(node_type, "ca") ? -EINVAL : 0;
}

static void tqp_device_address(struct tqp_device *dev)
{
	const struct net_device *netdev = dev->netdev;

	if (netdev->addr_len == ETH_ALEN)
		ether_addr_copy(dev->mac, netdev->dev_addr);
	else
		eth_random_addr(dev->mac);
	addrconf_addr_eui48((u8 *)&dev->ib.node_guid, (const char *)dev->mac);
}

struct tqp_device *tqp_device_alloc(struct net_device *netdev)
{
	struct tqp_device *dev;

	dev = ib_alloc_device(tqp_device, ib);
	if (!dev)
		return NULL;
	dev->counters = alloc_percpu(struct tqp_counters);
	if (!dev->counters || tqp_mr_table_init(dev)) {
		free_percpu(dev->counters);
		ib_dealloc_device(&dev->ib);
		return NULL;
	}
	dev->netdev = netdev;
	netdev_hold(netdev, &dev->netdev_tracker, GFP_KERNEL);
	INIT_LIST_HEAD(&dev->node);
	INIT_LIST_HEAD(&dev->number_node);
	xa_init(&dev->mws);
	xa_init_flags(&dev->qps, XA_FLAGS_ALLOC1);
	xa_init(&dev->uds);
	xa_init_flags(&dev->ahs, XA_FLAGS_ALLOC1);
	get_random_bytes(&dev->qpn_key, sizeof(dev->qpn_key));
	ida_init(&dev->pds);
	INIT_WORK(&dev->reap_work, tqp_link_reap);

	ib_set_device_ops(&dev->ib, &tqp_device_ops);
	dev->ib.driver_def = tqp_uapi;
	dev->ib.node_type = strcmp(node_type, "ca") ? RDMA_NODE_RNIC : RDMA_NODE_IB_CA;
	dev->ib.phys_port_cnt = 1;
	dev->ib.num_comp_vectors = num_possible_cpus();
	dev->ib.uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) |
				   BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
	strscpy(dev->ib.node_desc, "tcp_qp", sizeof(dev->ib.node_desc));
	strscpy(dev->ib.iw_ifname, netdev->name, sizeof(dev->ib.iw_ifname));
	dev->ib.iw_driver_flags = IW_F_NO_PORT_MAP;
	tqp_device_address(dev);
	return dev;
}

void tqp_device_event(struct tqp_device *dev, enum ib_event_type type)
{
	struct ib_event event = {
		.device = &dev->ib,
		.element.port_num = 1,
		.event = type,
	};

	/* what follows an event looks at tables that come and go with the registration, which waits for us */
	if (!ib_device_try_get(&dev->ib))
		return;
	ib_dispatch_event(&event);
	ib_device_put(&dev->ib);
}
