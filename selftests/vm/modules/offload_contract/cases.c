// SPDX-License-Identifier: GPL-2.0
/* What a provider must answer.  A case says why it failed, or NULL. */
#include <linux/kthread.h>
#include <linux/completion.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include "contract.h"

enum {
	CONTRACT_KEY = 0x12345,
	CONTRACT_QPN = 0x77,
	CONTRACT_PD = 5,
	CONTRACT_RQ_LOG2 = 6,
	CONTRACT_RQ_MASK = 31,		/* 32 elements of 64 bytes: one page with the ring's head */
	CONTRACT_TASKS = 4,
	CONTRACT_TURNS = 50,
};

static int mr_reg(struct contract *c, u32 key, u32 nr_pages)
{
	const struct tqp_offload_mr mr = {
		.key = key,
		.pd = CONTRACT_PD,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
		.iova = 0x10000,
		.bytes = PAGE_SIZE,
		.pages = &c->buffer_dma,
		.nr_pages = nr_pages,
		.page_shift = PAGE_SHIFT,
	};

	return c->odev->ops->mr_reg(c->odev, &mr);
}

static int mr_dereg(struct contract *c, u32 key)
{
	return c->odev->ops->mr_dereg(c->odev, key);
}

/* @port: of the flow, in documentation's addresses (RFC 5737). */
static int qp_create(struct contract *c, u32 qpn, u16 port, u32 flags, u32 nr_rq_pages)
{
	const struct tqp_offload_qp qp = {
		.qpn = qpn,
		.pd = CONTRACT_PD,
		.flags = flags,
		.flow = {
			.family = 4,
			.sport = htons(port),
			.dport = htons(9),
			.saddr = { 192, 0, 2, 1 },
			.daddr = { 192, 0, 2, 2 },
		},
		.rcv_nxt = 1,
		.rcv_wscale = 7,
		.rq_log2_bytes = flags & TQP_OFFLOAD_QP_NO_RQ ? 0 : CONTRACT_RQ_LOG2,
		.rq_sge_max = flags & TQP_OFFLOAD_QP_NO_RQ ? 0 : 1,
		.rq_mask = flags & TQP_OFFLOAD_QP_NO_RQ ? 0 : CONTRACT_RQ_MASK,
		.rq_pages = nr_rq_pages ? &c->ring_dma : NULL,
		.nr_rq_pages = nr_rq_pages,
		.shadow = c->shadow_dma,
	};

	return c->odev->ops->qp_create(c->odev, &qp);
}

static int qp_create_plain(struct contract *c, u32 qpn, u16 port)
{
	return qp_create(c, qpn, port, 0, 1);
}

static int qp_destroy(struct contract *c, u32 qpn)
{
	return c->odev->ops->qp_destroy(c->odev, qpn);
}

/* ---- the cases ---- */

static const char *case_nothing_there(struct contract *c)
{
	if (!mr_dereg(c, CONTRACT_KEY))
		return "a region that never was is deregistered";
	if (!qp_destroy(c, CONTRACT_QPN))
		return "a queue pair that never was is destroyed";
	return NULL;
}

static const char *case_region_twice(struct contract *c)
{
	if (mr_reg(c, CONTRACT_KEY, 1))
		return "a region is refused";
	if (!mr_reg(c, CONTRACT_KEY, 1))
		return "its key is taken twice";
	if (mr_dereg(c, CONTRACT_KEY))
		return "the first one went with the second";
	if (!mr_dereg(c, CONTRACT_KEY))
		return "it is deregistered twice";
	if (mr_reg(c, CONTRACT_KEY, 1) || mr_dereg(c, CONTRACT_KEY))
		return "its key is not free again";
	return NULL;
}

static const char *case_region_without_pages(struct contract *c)
{
	if (mr_reg(c, CONTRACT_KEY, 0))
		return NULL;
	mr_dereg(c, CONTRACT_KEY);
	return "a page of memory in no page";
}

static const char *case_qp_twice(struct contract *c)
{
	if (qp_create_plain(c, CONTRACT_QPN, 1))
		return "a queue pair is refused";
	if (!qp_create_plain(c, CONTRACT_QPN, 2))
		return "its number is taken twice";
	if (!qp_create_plain(c, CONTRACT_QPN + 1, 1))
		return "its flow is taken twice";
	if (qp_create_plain(c, CONTRACT_QPN + 1, 2) || qp_destroy(c, CONTRACT_QPN + 1))
		return "what was refused is not free";
	if (qp_destroy(c, CONTRACT_QPN))
		return "the first one went with the second";
	if (!qp_destroy(c, CONTRACT_QPN))
		return "it is destroyed twice";
	if (qp_create_plain(c, CONTRACT_QPN, 1) || qp_destroy(c, CONTRACT_QPN))
		return "number and flow are not free again";
	return NULL;
}

static const char *case_qp_without_receives(struct contract *c)
{
	if (qp_create(c, CONTRACT_QPN, 1, TQP_OFFLOAD_QP_NO_RQ, 0))
		return "a queue pair without a receive queue is refused";
	return qp_destroy(c, CONTRACT_QPN) ? "it is not destroyed" : NULL;
}

static const char *case_ring_outside_its_pages(struct contract *c)
{
	if (qp_create(c, CONTRACT_QPN, 1, 0, 0))
		return NULL;
	qp_destroy(c, CONTRACT_QPN);
	return "a receive queue in no page";
}

/* What it says it can do it does; what it does not say, it refuses. */
static const char *case_flags(struct contract *c)
{
	static const u32 asked[] = {
		TQP_OFFLOAD_QP_TX_V0, TQP_OFFLOAD_QP_TX_V0 | TQP_OFFLOAD_QP_ICRC,
	};
	u32 i;

	if (c->odev->tx_flags & ~(TQP_OFFLOAD_QP_TX_V0 | TQP_OFFLOAD_QP_ICRC))
		return "tx_flags has others than TX_V0 and ICRC";
	for (i = 0; i < ARRAY_SIZE(asked); i++) {
		bool can = !(asked[i] & ~c->odev->tx_flags);
		int err = qp_create(c, CONTRACT_QPN, 1, asked[i], 1);

		if (!err)
			qp_destroy(c, CONTRACT_QPN);
		if (can && err)
			return "a flag of its tx_flags is refused";
		if (!can && err != -EOPNOTSUPP)
			return "a flag that is not in its tx_flags is not refused by EOPNOTSUPP";
	}
	if (!qp_create(c, CONTRACT_QPN, 1, 1U << 31, 1)) {
		qp_destroy(c, CONTRACT_QPN);
		return "a flag that nobody knows is taken";
	}
	return NULL;
}

static const char *case_regions_and_queue_pairs_apart(struct contract *c)
{
	const char *why = NULL;

	if (mr_reg(c, CONTRACT_KEY, 1) || qp_create_plain(c, CONTRACT_QPN, 1))
		return "a region or a queue pair is refused";
	if (mr_dereg(c, CONTRACT_KEY))
		why = "a region cannot go before its queue pair";
	if (qp_destroy(c, CONTRACT_QPN))
		why = "the queue pair went with the region";
	return why;
}

struct contract_task {
	struct contract *c;
	u32 number;
	int err;
	struct completion done;
};

static int contract_task(void *data)
{
	struct contract_task *task = data;
	u32 key = CONTRACT_KEY + task->number, qpn = CONTRACT_QPN + task->number, turn;

	for (turn = 0; !task->err && turn < CONTRACT_TURNS; turn++)
		task->err = mr_reg(task->c, key, 1) ?:
			    qp_create_plain(task->c, qpn, 1 + task->number) ?:
			    mr_dereg(task->c, key) ?: qp_destroy(task->c, qpn);
	kthread_complete_and_exit(&task->done, 0);	/* the module may go then */
}

static const char *case_several_at_once(struct contract *c)
{
	struct contract_task task[CONTRACT_TASKS];
	const char *why = NULL;
	u32 i;

	for (i = 0; i < CONTRACT_TASKS; i++) {
		task[i] = (struct contract_task){ .c = c, .number = i };
		init_completion(&task[i].done);
		if (IS_ERR(kthread_run(contract_task, &task[i], "contract/%u", i))) {
			complete(&task[i].done);
			why = "no task";
		}
	}
	for (i = 0; i < CONTRACT_TASKS; i++) {
		wait_for_completion(&task[i].done);
		if (task[i].err)
			why = "calls at once get in each other's way";
	}
	return why;
}

u32 contract_run(struct contract *c)
{
#define CONTRACT_CASE(name) { #name, case_##name }
	static const struct {
		const char *name;
		const char *(*run)(struct contract *c);
	} cases[] = {
		CONTRACT_CASE(nothing_there), CONTRACT_CASE(region_twice),
		CONTRACT_CASE(region_without_pages), CONTRACT_CASE(qp_twice),
		CONTRACT_CASE(qp_without_receives), CONTRACT_CASE(ring_outside_its_pages),
		CONTRACT_CASE(flags), CONTRACT_CASE(regions_and_queue_pairs_apart),
		CONTRACT_CASE(several_at_once),
	};
#undef CONTRACT_CASE
	u32 i, failed = 0;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *why = cases[i].run(c);

		failed += !!why;
		if (why)
			pr_info("offload_contract: %s: not ok %s, %s\n", c->odev->netdev->name,
				cases[i].name, why);
		else
			pr_info("offload_contract: %s: ok %s\n", c->odev->netdev->name,
				cases[i].name);
	}
	return failed;
}
