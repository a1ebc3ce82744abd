// SPDX-License-Identifier: GPL-2.0
/* A QP in the switch. */
#include <linux/module.h>
#include "offload/offload.h"

static bool nic_completes = true;
module_param(nic_completes, bool, 0644);
MODULE_PARM_DESC(nic_completes, "a NIC that can may complete receives of new connections (default Y)");

void tqp_offload_flow_of(const struct sock *sk, struct tqp_offload_flow *flow)
{
	const struct inet_sock *inet = inet_sk(sk);

	memset(flow, 0, sizeof(*flow));
	flow->sport = inet->inet_dport;
	flow->dport = inet->inet_sport;
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr)) {
		flow->family = 6;
		memcpy(flow->saddr, &sk->sk_v6_daddr, 16);
		memcpy(flow->daddr, &sk->sk_v6_rcv_saddr, 16);
		return;
	}
#endif
	flow->family = 4;
	memcpy(flow->saddr, &inet->inet_daddr, 4);
	memcpy(flow->daddr, &inet->inet_rcv_saddr, 4);
}

static void tqp_rq_unmap(struct tqp_conn *conn, struct device *dma_dev)
{
	tqp_ring_unmap(dma_dev, conn->offload.rq_dma, conn->offload.nr_rq_dma);
	conn->offload.rq_dma = NULL;
	conn->offload.nr_rq_dma = 0;
}

static void tqp_rq_give_up(struct tqp_conn *conn)
{
	if (conn->offload.rq_dma)
		tqp_ring_give_up(conn->offload.rq);
	kvfree(conn->offload.rq_dma);
	conn->offload.rq_dma = NULL;
	conn->offload.nr_rq_dma = 0;
}

/* The switch reads the receive ring where the application writes it, and says what is used. */
static int tqp_rq_map(struct tqp_conn *conn, struct device *dma_dev)
{
	dma_addr_t *pages;

	if (!conn->qp->rq)
		return 0;
	pages = tqp_ring_map(conn->qp->rq, dma_dev, &conn->offload.nr_rq_dma);
	if (IS_ERR(pages))
		return PTR_ERR(pages);
	conn->offload.rq_dma = pages;
	conn->offload.rq = conn->qp->rq;	/* which lives until the context is gone */
	return 0;
}

static void tqp_offload_rq(const struct tqp_conn *conn, struct tqp_offload_qp *oqp)
{
	const struct tqp_qp *qp = conn->qp;

	oqp->rq_log2_bytes = qp->rq->log2_elem;
	oqp->rq_sge_max = qp->cap.max_recv_sge;
	oqp->rq_mask = qp->rq->mask;
	oqp->rq_base = qp->rq->index;
	oqp->rq_pages = conn->offload.rq_dma;
	oqp->nr_rq_pages = conn->offload.nr_rq_dma;
}

static void tqp_offload_sends(const struct tqp_conn *conn, struct tqp_offload_qp *oqp)
{
	struct tqp_cq *cq = conn->qp->scq;

	if (conn->tx.late || !conn->dev->offload->completes_sends || !tqp_cq_share(cq))
		return;
	oqp->flags |= TQP_OFFLOAD_QP_SENDS;
	oqp->send_cq = cq->ib.res.id;
}

static void tqp_offload_receives(const struct tqp_conn *conn, struct tqp_offload_qp *oqp)
{
	const struct tqp_qp *qp = conn->qp;
	bool completes;

	if (qp->rq)
		tqp_offload_rq(conn, oqp);
	completes = READ_ONCE(nic_completes) && (qp->rq || tqp_srq_share(qp->srq)) &&
		    tqp_cq_share(qp->rcq);
	if (completes) {
		oqp->flags |= TQP_OFFLOAD_QP_COMPLETE;
		oqp->cq = qp->rcq->ib.res.id;
		tqp_offload_sends(conn, oqp);
	}
	if (qp->srq && completes) {
		oqp->flags |= TQP_OFFLOAD_QP_SRQ;
		oqp->srq = qp->srq->ib.res.id;
	} else if (qp->srq) {
		oqp->flags |= TQP_OFFLOAD_QP_NO_RQ;
	}
}

/* What needs the sk lock, for which nobody waits under the mutex. */
static void tqp_offload_describe(struct tqp_conn *conn, struct tqp_offload_qp *oqp)
{
	const struct tqp_qp *qp = conn->qp;

	oqp->qpn = qp->qpn;
	oqp->pd = qp->pd->pdn;
	oqp->shadow = conn->offload.shadow_dma;
	if (conn->wire_version == 0)
		oqp->flags |= TQP_OFFLOAD_QP_TX_V0;
	if (conn->icrc)
		oqp->flags |= TQP_OFFLOAD_QP_ICRC;
	if (READ_ONCE(qp->attr.qp_access_flags) & IB_ACCESS_REMOTE_WRITE)
		oqp->flags |= TQP_OFFLOAD_QP_REMOTE_WRITE;
	tqp_offload_flow_of(conn->sk, &oqp->flow);
	lock_sock(conn->sk);
	oqp->rcv_wscale = tcp_sk(conn->sk)->rx_opt.rcv_wscale;
	oqp->rcv_nxt = tcp_sk(conn->sk)->rcv_nxt;
	if (conn->offload.shadow)	/* else the conn is over already */
		conn->offload.shadow->consumed = cpu_to_le32(tcp_sk(conn->sk)->copied_seq);
	release_sock(conn->sk);
}

static int tqp_offload_create(struct tqp_conn *conn, struct tqp_offload_qp *oqp)
{
	struct tqp_offload_device *odev = conn->dev->offload;
	int err;

	lockdep_assert_held(&conn->offload.mutex);
	if (READ_ONCE(conn->state) == TQP_CONN_DEAD)	/* what ends it may have been here */
		return 0;
	err = tqp_rq_map(conn, odev->dma_dev);
	if (err)
		return err;
	tqp_offload_receives(conn, oqp);
	err = odev->ops->qp_create(odev, oqp);
	if (err) {
		tqp_rq_unmap(conn, odev->dma_dev);
		return err;
	}
	conn->offload.no_mixed = !odev->mixed_trains;
	conn->offload.active = true;
	return 0;
}

/* The NIC may complete from now on. */
static void tqp_offload_begin(struct tqp_conn *conn, const struct tqp_offload_qp *oqp)
{
	lock_sock(conn->sk);
	if (conn->offload.shadow && oqp->flags & TQP_OFFLOAD_QP_COMPLETE) {
		conn->offload.turn.state = TQP_TURN_OURS;
		conn->offload.sends.on = oqp->flags & TQP_OFFLOAD_QP_SENDS;
	}
	release_sock(conn->sk);
}

static void tqp_conn_shadow_end(struct tqp_conn *conn)
{
	lock_sock(conn->sk);
	tqp_shadow_end(conn);
	release_sock(conn->sk);
}

int tqp_conn_offload_start(struct tqp_conn *conn)
{
	struct tqp_offload_qp oqp = {};
	int err;

	err = tqp_shadow_alloc(conn);
	if (err)
		return err;
	tqp_offload_describe(conn, &oqp);
	mutex_lock(&conn->offload.mutex);
	err = tqp_offload_create(conn, &oqp);
	mutex_unlock(&conn->offload.mutex);
	if (err)
		tqp_conn_shadow_end(conn);
	else
		tqp_offload_begin(conn, &oqp);
	return err;
}

void tqp_conn_offload_leave(struct tqp_conn *conn)
{
	mutex_lock(&conn->offload.mutex);
	if (conn->offload.active) {	/* then the QP, and with it the device, is still there */
		struct tqp_offload_device *odev = conn->dev->offload;

		conn->offload.active = false;
		conn->offload.lost = !tqp_end_is_forgotten(conn->dev, odev->ops->qp_destroy(odev, conn->qpn));
		if (conn->offload.lost)
			tqp_rq_give_up(conn);
		else
			tqp_rq_unmap(conn, odev->dma_dev);
	}
	mutex_unlock(&conn->offload.mutex);
}

void tqp_conn_offload_stop(struct tqp_conn *conn)
{
	tqp_conn_offload_leave(conn);
	tqp_conn_shadow_end(conn);
}
