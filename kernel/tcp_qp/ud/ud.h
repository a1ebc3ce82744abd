/* SPDX-License-Identifier: GPL-2.0 */
/*
 * UD queue pairs: a message is a UDP datagram (docs/ud.md).
 *
 *   tqp_ud_net   of a network namespace: the socket that its datagrams come to, and what
 *                waits to be received.  From its first link on, until the namespace goes.
 *   tqp_ud       the UDP side of a QP, with a socket to send from.  As long as the QP.
 *   tqp_ah       an address handle
 *
 * Locks, outermost first; those of tqp.h are inside them:
 *   qp->mutex    the send queue, and the QP's state (sleeps)
 *   ud->lock     the receive queue, and whether datagrams are received (bottom halves)
 * RCU: dev->uds and tqp_ud_net's devices, for who receives.  He finds a tqp_ud that a
 * destroy has parted from its QP, which he sees under ud->lock.
 */
#ifndef TQP_UD_H
#define TQP_UD_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>
#include <linux/udp.h>
#include <rdma/ib_addr.h>
#include "conn/rx.h"
#include "object/tqp.h"
#include "wire/ud_wire.h"

enum {
	TQP_UD_PORT = 4793,			/* the default; RoCE v2 is at 4791 */
	TQP_UD_AH_MAX = 1 << 16,		/* of a device */
	TQP_UD_BACKLOG_BYTES = 4 << 20,		/* of a namespace, what skbs take of memory */
	TQP_UD_TURN = 64,			/* datagrams that the work receives before others' turn */
	TQP_UD_HEADERS_BYTES = sizeof(struct ipv6hdr) + sizeof(struct udphdr) + TQP_UD_HEAD_BYTES,
	TQP_UD_GRH_BYTES = sizeof(struct ib_grh),
	TQP_UD_CONTROL_BYTES = CMSG_SPACE(sizeof(struct in6_pktinfo)) + 2 * CMSG_SPACE(sizeof(int)),
};

/* Where a datagram goes, and from where: what sendmsg() is told. */
struct tqp_ud_route {
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} to;
	u32 to_bytes;
	u32 control_bytes;
	u8 control[TQP_UD_CONTROL_BYTES] __aligned(__alignof__(struct cmsghdr));
};

struct tqp_ah {
	struct ib_ah ib;
	u32 number;
	struct tqp_ud_route route;	/* constant */
};

/* The WQE that is being sent, copied once. */
struct tqp_ud_wqe {
	u64 wr_id;
	u32 opcode, flags;
	u32 imm;
	u32 qpn, qkey, ah;
	u32 bytes;
	u32 nr_sge;
	struct ib_sge sges[TQP_SGE_MAX];
};

struct tqp_ud {
	struct tqp_qp *qp;		/* under lock; NULL: destroyed */
	spinlock_t lock;
	bool receiving;			/* under lock: the QP's state lets it */
	bool failed;			/* under lock: work ends the QP */
	u32 qkey;			/* under lock */
	struct tqp_rx_wqe recv;		/* under lock */
	struct ib_sge recv_sges[TQP_SGE_MAX];
	struct socket *sock;		/* datagrams leave from it, none is received */
	void (*saved_write_space)(struct sock *sk);
	bool blocked;			/* the socket's buffer was full: work goes on */
	struct work_struct work;
	struct rcu_head rcu;
	/* the rest under qp->mutex */
	struct tqp_ud_wqe wqe;
	struct tqp_ud_route route;
	u8 datagram[TQP_UD_HEAD_BYTES + TQP_UD_PAYLOAD_MAX_BYTES];
};

static inline struct tqp_ah *to_tqp_ah(struct ib_ah *ib)
{
	return container_of(ib, struct tqp_ah, ib);
}

/*
 * The port's MTU: the largest message, chosen so that it is one packet on the device's own
 * link.  Where the path is narrower, IP cuts and joins.
 */
static inline enum ib_mtu tqp_ud_mtu(const struct tqp_device *dev)
{
	return ib_mtu_int_to_enum(READ_ONCE(dev->netdev->mtu) - TQP_UD_HEADERS_BYTES);
}

/* ---- net.c: the socket of a namespace ---- */
int tqp_ud_init(void);
void tqp_ud_exit(void);
u16 tqp_ud_port(void);			/* 0: no UD */
/* @dev hears its namespace's datagrams, from here on until the other returns; both sleep. */
void tqp_ud_add_device(struct tqp_device *dev);
void tqp_ud_del_device(struct tqp_device *dev);
/* 0 if the namespace of the device has its socket, which is made if it can be; sleeps. */
int tqp_ud_open(struct tqp_device *dev);
/* Whatever comes to @sock is @rcv's. */
void tqp_ud_encap(struct socket *sock, int (*rcv)(struct sock *sk, struct sk_buff *skb));

/* ---- qp.c ---- */
int tqp_ud_create(struct tqp_qp *qp);	/* its number is known */
void tqp_ud_destroy(struct tqp_qp *qp);	/* none finds it any more; sleeps */
int tqp_ud_modify(struct tqp_qp *qp, const struct ib_qp_attr *attr, int mask);
/* Send what was posted; process context, sleeps. */
int tqp_ud_doorbell(struct tqp_qp *qp);

/* ---- send.c; under qp->mutex ---- */
/* Until the send queue is empty or the socket's buffer full. */
void tqp_ud_send(struct tqp_qp *qp);

/* ---- recv.c; RCU read side, bottom halves off ---- */
/* @skb's data is its UDP header, its checksum was right. */
void tqp_ud_receive(struct tqp_device *dev, struct sk_buff *skb);

/* ---- ah.c ---- */
int tqp_create_user_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init, struct ib_udata *udata);
int tqp_destroy_ah(struct ib_ah *ibah, u32 flags);
/* A copy of @number's; false: none of this protection domain has it. */
bool tqp_ah_route(struct tqp_pd *pd, u32 number, struct tqp_ud_route *route);

#endif
