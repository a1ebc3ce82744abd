/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The seam between a NIC driver that can place queue pair payload and tcp_qp.
 *
 * The driver registers an auxiliary device named TQP_OFFLOAD_ADEV_NAME; tcp_qp
 * is the auxiliary driver for it.  Neither module needs the other to load.
 * auxiliary_device_delete() returns only after tcp_qp has let go of every QP
 * and MR on the device, so the driver may then tear its queues down.
 *
 * All operations sleep, may be called at once from several tasks, and have
 * taken full effect in the hardware when they return.
 */
#ifndef TQP_OFFLOAD_H
#define TQP_OFFLOAD_H

#include <linux/auxiliary_bus.h>
#include <linux/netdevice.h>
#include <tcp_qp/nupa_hw.h>

#define TQP_OFFLOAD_ADEV_NAME "qp"	/* matched as "nupa_dev.qp" */

struct tqp_offload_device;

struct tqp_offload_mr {
	u32 key;
	u32 pd;
	u32 access;		/* NUPA_ACCESS_* */
	u64 iova;
	u64 bytes;
	const dma_addr_t *pages;	/* for dma_dev; [i] holds iova rounded down to a page, plus i pages */
	u32 nr_pages;
	u8 page_shift;
};

struct tqp_offload_qp {
	u32 qpn;
	u32 pd;
	u32 flags;		/* NUPA_QP_F_* */
	struct nupa_flow flow;	/* as this host receives it: saddr is the peer */
	u32 rcv_nxt;
	u8 rcv_wscale;
	u8 rq_log2_bytes;
	u16 rq_sge_max;
	u32 rq_mask;
	u32 rq_base;
	const dma_addr_t *rq_pages;
	u32 nr_rq_pages;
	dma_addr_t shadow;	/* struct nupa_qp_shadow */
};

struct tqp_offload_ops {
	int (*mr_reg)(struct tqp_offload_device *odev, const struct tqp_offload_mr *mr);
	int (*mr_dereg)(struct tqp_offload_device *odev, u32 key);
	int (*qp_create)(struct tqp_offload_device *odev, const struct tqp_offload_qp *qp);
	int (*qp_destroy)(struct tqp_offload_device *odev, u32 qpn);
	int (*qp_stats)(struct tqp_offload_device *odev, u32 qpn, u64 stats[NUPA_QP_STAT_COUNT]);
};

/* Filled by the NIC driver before auxiliary_device_add(), constant after. */
struct tqp_offload_device {
	struct auxiliary_device adev;
	struct net_device *netdev;
	struct device *dma_dev;
	const struct tqp_offload_ops *ops;
	u32 qps_max;
	u32 mrs_max;
};

static inline struct tqp_offload_device *to_tqp_offload_device(struct auxiliary_device *adev)
{
	return container_of(adev, struct tqp_offload_device, adev);
}

/*
 * A placed skb, as the driver hands it to the stack: the frags are a shared
 * zero page, skb->decrypted is set, truesize >= len, CHECKSUM_UNNECESSARY, and
 * the TCP header still carries its tcp_bth option.  It must go up by
 * netif_receive_skb(), never by GRO.
 */

#endif
