// SPDX-License-Identifier: GPL-2.0
/*
 * A datagram to the receive that it takes.  What does not fit its QP is dropped and
 * counted; the sender hears nothing of it, and no receive is used up.
 */
#include <net/ip.h>
#include "memory/memory.h"
#include "ud/ud.h"

enum {
	TQP_GRH_NEXT_HEADER = 0x1b,	/* IBTA: what follows is a BTH, though nobody sees it */
	TQP_GRH_VERSION = 6,
};

struct tqp_datagram {
	struct sk_buff *skb;
	struct tqp_ud_head head;
	struct ib_grh grh;
};

/* ---- the datagram ---- */

/*
 * GIDs of the type "IB/RoCE v1", as an iWARP port has them, go with IBTA's own header, so
 * for IPv4, too: ibv_create_ah_from_wc() looks up a RoCE v2 GID if it finds an IPv4 header.
 */
static void tqp_ud_grh(struct tqp_datagram *d)
{
	const struct iphdr *v4 = ip_hdr(d->skb);
	const struct ipv6hdr *v6 = ipv6_hdr(d->skb);
	u32 flow = TQP_GRH_VERSION << 28;

	d->grh.paylen = htons(d->head.bytes);
	d->grh.next_hdr = TQP_GRH_NEXT_HEADER;
	if (v4->version == 4) {
		flow |= v4->tos << 20;
		d->grh.hop_limit = v4->ttl;
		ipv6_addr_set_v4mapped(v4->saddr, (struct in6_addr *)d->grh.sgid.raw);
		ipv6_addr_set_v4mapped(v4->daddr, (struct in6_addr *)d->grh.dgid.raw);
	} else {
		flow = ntohl(ip6_flowinfo(v6)) | flow;
		d->grh.hop_limit = v6->hop_limit;
		memcpy(d->grh.sgid.raw, &v6->saddr, sizeof(v6->saddr));
		memcpy(d->grh.dgid.raw, &v6->daddr, sizeof(v6->daddr));
	}
	d->grh.version_tclass_flow = htonl(flow);
}

static bool tqp_ud_read(struct tqp_datagram *d)
{
	u32 headers = sizeof(struct udphdr) + TQP_UD_HEAD_BYTES;

	return pskb_may_pull(d->skb, headers) &&
	       !tqp_ud_parse(d->skb->data + sizeof(struct udphdr),
			     d->skb->len - sizeof(struct udphdr), &d->head);
}

/* @bytes from @at on of what the receive gets: GRH, then payload. */
static bool tqp_ud_copy(const struct tqp_datagram *d, u32 at, u8 *to, u32 bytes)
{
	u32 n;

	if (at < TQP_UD_GRH_BYTES) {
		n = min_t(u32, bytes, TQP_UD_GRH_BYTES - at);
		memcpy(to, (const u8 *)&d->grh + at, n);
		at += n;
		to += n;
		bytes -= n;
	}
	return !bytes || !skb_copy_bits(d->skb, sizeof(struct udphdr) + TQP_UD_HEAD_BYTES + at -
					TQP_UD_GRH_BYTES, to, bytes);
}

/* ---- the receive ---- */

struct tqp_ud_claim {
	struct tqp_rx_wqe *wqe;
	u32 bytes;			/* that it must have room for */
};

/* struct tqp_ud_claim; of a receive that is too small nothing is taken. */
static bool tqp_ud_claim(const struct rxe_recv_wqe *from, u32 max_sge, void *claim)
{
	struct tqp_ud_claim *c = claim;

	tqp_rx_wqe_copy(c->wqe, from, max_sge);
	c->wqe->valid = c->wqe->room >= c->bytes;
	return c->wqe->valid;
}

/* 0, or the counter of why there is no receive. */
static int tqp_ud_take(struct tqp_ud *ud, u32 bytes)
{
	struct tqp_ud_claim claim = { &ud->recv, bytes };
	struct tqp_qp *qp = ud->qp;

	lockdep_assert_held(&ud->lock);
	ud->recv.valid = false;
	if (qp->srq ? !tqp_srq_posted(qp->srq) : !tqp_ring_posted(qp->rq, qp->rq->index))
		return TQP_C_ud_rx_no_receive;
	if (qp->srq)
		tqp_srq_take(qp->srq, tqp_ud_claim, &claim);
	else if (tqp_ud_claim(tqp_ring_entry(qp->rq, qp->rq->index), qp->cap.max_recv_sge, &claim))
		tqp_ring_consume(qp->rq);
	return ud->recv.valid ? 0 : TQP_C_ud_rx_too_short;
}

/* RCU keeps the region's pages pinned, as in memory/place.c. */
static bool tqp_ud_copy_to(const struct tqp_qp *qp, const struct tqp_datagram *d, u32 at,
			   const struct ib_sge *sge, u32 bytes)
{
	struct tqp_mr *mr = tqp_mr_lookup(qp->dev, sge->lkey);
	u64 addr = sge->addr;
	void *to;
	u32 run;

	if (!mr || tqp_mr_check(mr, qp->pd->pdn, addr, bytes, IB_ACCESS_LOCAL_WRITE))
		return false;
	for (; bytes; bytes -= run, addr += run, at += run) {
		to = tqp_mr_kaddr(mr, addr, bytes, &run);
		if (!tqp_ud_copy(d, at, to, run))
			return false;
	}
	return true;
}

static enum ib_wc_status tqp_ud_scatter(const struct tqp_ud *ud, const struct tqp_datagram *d,
					u32 bytes)
{
	u32 at = 0, step;

	for (u32 i = 0; i < ud->recv.nr_sge && at < bytes; i++, at += step) {
		step = min(bytes - at, ud->recv.sges[i].length);
		if (step && !tqp_ud_copy_to(ud->qp, d, at, &ud->recv.sges[i], step))
			return IB_WC_LOC_PROT_ERR;
	}
	return IB_WC_SUCCESS;
}

static void tqp_ud_complete(struct tqp_ud *ud, const struct tqp_ud_head *head,
			    enum ib_wc_status status)
{
	struct ib_uverbs_wc wc = {
		.wr_id = ud->recv.wr_id,
		.status = status,
		.opcode = IB_WC_RECV,
		.byte_len = TQP_UD_GRH_BYTES + head->bytes,
		.qp_num = ud->qp->qpn,
		.src_qp = head->src_qpn,
		.wc_flags = IB_WC_GRH,
		.port_num = 1,
	};

	if (tqp_ud_has_immediate(head)) {
		wc.ex.imm_data = htonl(head->imm);
		wc.wc_flags |= IB_WC_WITH_IMM;
	}
	tqp_cq_post(ud->qp->rcq, &wc, head->flags & TQP_UD_F_SOLICITED);
}

/* A receive whose memory was wrong ends the QP, which sleeps. */
static void tqp_ud_fail(struct tqp_ud *ud)
{
	ud->receiving = false;
	ud->failed = true;
	queue_work(tqp_wq, &ud->work);
}

/* 0, or the counter of why it is dropped. */
static int tqp_ud_place(struct tqp_ud *ud, struct tqp_datagram *d)
{
	u32 bytes = TQP_UD_GRH_BYTES + d->head.bytes;
	enum ib_wc_status status;
	int why;

	lockdep_assert_held(&ud->lock);
	if (!ud->qp || !ud->receiving)
		return TQP_C_ud_rx_unknown_qp;
	if (d->head.qkey != ud->qkey)
		return TQP_C_ud_rx_bad_qkey;
	why = tqp_ud_take(ud, bytes);
	if (why)
		return why;
	tqp_ud_grh(d);
	status = tqp_ud_scatter(ud, d, bytes);
	tqp_ud_complete(ud, &d->head, status);
	if (!status)
		return TQP_C_ud_rx_messages;
	tqp_ud_fail(ud);
	return TQP_C_rx_protection_errors;
}

void tqp_ud_receive(struct tqp_device *dev, struct sk_buff *skb)
{
	struct tqp_datagram d = { .skb = skb };
	int counter = TQP_C_ud_rx_unknown_qp;
	struct tqp_ud *ud;

	if (!tqp_ud_read(&d)) {
		tqp_count(dev, TQP_C_ud_rx_malformed, 1);
		return;
	}
	ud = xa_load(&dev->uds, d.head.dest_qpn);
	if (ud) {
		spin_lock(&ud->lock);
		counter = tqp_ud_place(ud, &d);
		spin_unlock(&ud->lock);
	}
	tqp_count(dev, counter, 1);
}
