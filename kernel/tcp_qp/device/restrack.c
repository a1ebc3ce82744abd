// SPDX-License-Identifier: GPL-2.0
/*
 * `rdma resource show qp|mr|cq -dd`: what only this driver knows of an object.
 * Anybody may ask, and the core does not tell us who does: no keys, no addresses.
 * A socket's cookie says nothing to who cannot see that socket by inet_diag.
 */
#include <rdma/restrack.h>
#include <net/netlink.h>
#include <uapi/rdma/rdma_netlink.h>
#include "control/control.h"
#include "device/device.h"

struct tqp_detail {
	const char *name;
	u64 value;
};

static int tqp_put_details(struct sk_buff *skb, const struct tqp_detail *details, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (rdma_nl_put_driver_u64(skb, details[i].name, details[i].value))
			return -EMSGSIZE;
	return 0;
}

/* One nested attribute of the driver's: @first, then @details. */
static int tqp_fill(struct sk_buff *skb, const char *first, const char *value,
		    const struct tqp_detail *details, size_t count)
{
	struct nlattr *nest = nla_nest_start(skb, RDMA_NLDEV_ATTR_DRIVER);

	if (!nest)
		return -EMSGSIZE;
	if (rdma_nl_put_driver_string(skb, first, value) || tqp_put_details(skb, details, count)) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	nla_nest_end(skb, nest);
	return 0;
}

static const char *tqp_engine_word(u32 engine)
{
	switch (engine) {
	case TCP_QP_ENGINE_SOFTWARE:
		return "software";
	case TCP_QP_ENGINE_OFFLOAD:
		return "offload";
	default:
		return "none";		/* not attached */
	}
}

static int tqp_fill_info(struct sk_buff *skb, const struct tcp_qp_info *info,
			 const struct tqp_conn_details *more)
{
	const struct tqp_detail details[] = {
		{ "socket_cookie", more->socket_cookie },
		{ "reason", info->reason },
		{ "wire", info->wire_version },
		{ "mss", info->mss },
		{ "tx_messages", info->tx_messages },
		{ "tx_bytes", info->tx_bytes },
		{ "tx_segments", info->tx_segments },
		{ "tx_credits", more->tx_credits },
		{ "tx_credit_waits", info->tx_credit_waits },
		{ "rx_messages", info->rx_messages },
		{ "rx_delivered", info->rx_delivered_bytes },
		{ "rx_placed", info->rx_placed_bytes },
		{ "rx_copied", info->rx_copied_bytes },
		{ "rx_stalls", info->rx_stalls },
	};

	return tqp_fill(skb, "engine", tqp_engine_word(info->engine), details, ARRAY_SIZE(details));
}

int tqp_fill_res_qp(struct sk_buff *skb, struct ib_qp *ibqp)
{
	struct tqp_conn_details details;
	struct tcp_qp_info info;

	tqp_conn_info(to_tqp_qp(ibqp), &info);
	tqp_conn_details(to_tqp_qp(ibqp), &details);
	return tqp_fill_info(skb, &info, &details);
}

int tqp_fill_res_mr(struct sk_buff *skb, struct ib_mr *ibmr)
{
	const struct tqp_mr *mr = to_tqp_mr(ibmr);
	const struct tqp_detail details[] = {
		{ "offloaded", mr->offloaded },
		{ "access", mr->access },
		{ "page_size", 1ULL << mr->page_shift },
		{ "sends_in_tcp", refcount_read(&mr->refs) - 1 },
	};

	return tqp_fill(skb, "memory", mr->dmabuf ? "dma-buf" : "user", details,
			ARRAY_SIZE(details));
}

int tqp_fill_res_cq(struct sk_buff *skb, struct ib_cq *ibcq)
{
	struct tqp_cq *cq = to_tqp_cq(ibcq);
	struct tqp_detail details[] = { { "unpolled", 0 }, { "ring_bytes", 0 } };
	const char *state;

	spin_lock_irq(&cq->lock);
	state = cq->overflown ? "overflown" : cq->notify ? "armed" : "polled";
	details[0].value = tqp_cq_unpolled(cq);
	details[1].value = cq->ring->bytes;
	spin_unlock_irq(&cq->lock);
	return tqp_fill(skb, "state", state, details, ARRAY_SIZE(details));
}
