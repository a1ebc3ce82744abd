/* SPDX-License-Identifier: GPL-2.0 */
/* What the RDMA core calls, and the module. */
#ifndef TQP_DEVICE_H
#define TQP_DEVICE_H

#include "conn/conn.h"

/* ---- link.c: devices come and go ---- */
extern struct mutex tqp_devices_mutex;		/* inside rtnl and a netdev's own lock */
extern struct list_head tqp_devices;
void tqp_device_queue_removal(struct tqp_device *dev);	/* it goes, soon */
void tqp_link_reap(struct work_struct *work);
void tqp_link_dealloc(struct ib_device *ib);
/* Remove all devices that use @odev, or all there are if NULL; returns when they are gone. */
void tqp_link_remove(struct tqp_offload_device *odev);
int tqp_link_init(void);
void tqp_link_exit(void);

/* ---- netdev.c: events of the netdevs below ---- */
int tqp_netdev_init(void);
void tqp_netdev_exit(void);

/* ---- device.c ---- */
int tqp_device_check_params(void);
struct tqp_device *tqp_device_alloc(struct net_device *netdev);
void tqp_device_event(struct tqp_device *dev, enum ib_event_type event);

/* ---- uapi.c ---- */
extern const struct uapi_definition tqp_uapi[];

/* ---- restrack.c: `rdma resource show -dd` ---- */
int tqp_fill_res_qp(struct sk_buff *skb, struct ib_qp *ibqp);
int tqp_fill_res_mr(struct sk_buff *skb, struct ib_mr *ibmr);
int tqp_fill_res_cq(struct sk_buff *skb, struct ib_cq *ibcq);

/* ---- query.c ---- */
int tqp_query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata);
int tqp_query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr);
int tqp_query_gid(struct ib_device *ib, u32 port, int index, union ib_gid *gid);
/* Has the core the GIDs of now? */
bool tqp_gids_are_read(struct ib_device *ib);
int tqp_query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey);
int tqp_port_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable);
enum rdma_link_layer tqp_link_layer(struct ib_device *ib, u32 port);
struct net_device *tqp_get_netdev(struct ib_device *ib, u32 port);

/* ---- cq_fd.c: completion descriptors ---- */
/* A file to wait on @cq with; process context. */
struct file *tqp_cq_fd_open(struct tqp_cq *cq);

/* ---- qp_verbs.c, qp_modify.c ---- */
int tqp_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init, struct ib_udata *udata);
int tqp_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int tqp_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		 struct ib_qp_init_attr *init);
int tqp_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int tqp_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad);
/* Look at what was posted; process context, sleeps. */
int tqp_qp_doorbell(struct tqp_qp *qp);
/*
 * tqp_qp_flush() under qp->mutex from the verbs' side, whoever owns the rings; ends a
 * conn that still lives, which then flushes when nothing is in flight any more, and
 * says so where there is an SRQ.  True: no conn will, all is flushed.
 */
bool tqp_qp_flush_locked(struct tqp_qp *qp);

#endif
