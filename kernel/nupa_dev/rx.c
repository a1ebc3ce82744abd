// SPDX-License-Identifier: GPL-2.0
/* Receive queues at work.  All of it runs in the queue's NAPI. */
#include <linux/sched/clock.h>
#include <net/busy_poll.h>
#include "nupa.h"

static void nupa_rx_refill(struct nupa_queue *q)
{
	struct nupa_rxq *rx = &q->rx;

	if (rx->fill.entries - nupa_fill_waiting(&rx->fill) < NUPA_RX_REFILL_MIN ||
	    nupa_fill_up(&rx->fill, GFP_ATOMIC))
		return;
	nupa_rx_count(q, NUPA_RXS_alloc_failures, 1);
	/*
	 * With few buffers left no packet may come that would try again.  What the switch could not
	 * reach is an accelerator's that is gone: it comes back to other rings.
	 */
	if (!rx->fill.beyond && nupa_fill_waiting(&rx->fill) < rx->fill.entries / 2)
		mod_timer(&q->rx_retry, jiffies + msecs_to_jiffies(NUPA_RX_RETRY_MS));
}

/*
 * The switch does without them, so nothing is taken from the reserves and
 * nobody waits; where memory is in pieces it is not asked again at once.
 */
static void nupa_rx_refill_long(struct nupa_queue *q)
{
	struct nupa_fill *f = &q->rx.longs;

	if (f->entries - nupa_fill_waiting(f) < NUPA_RX_LONG_REFILL_MIN ||
	    time_before(jiffies, f->again) || nupa_fill_up(f, GFP_NOWAIT | __GFP_NOMEMALLOC))
		return;
	nupa_rx_count(q, NUPA_RXS_long_alloc_failures, 1);
	f->again = jiffies + msecs_to_jiffies(NUPA_RX_RETRY_MS);
}

void nupa_rx_retry(struct timer_list *timer)
{
	struct nupa_queue *q = container_of(timer, struct nupa_queue, rx_retry);

	napi_schedule(&q->napi);
}

void nupa_rx_drop_bufs(struct nupa_queue *q, const struct nupa_rx_desc *desc)
{
	nupa_fill_drop(&q->rx.longs, desc->long_bufs, true);
	nupa_fill_drop(&q->rx.fill, desc->bufs, true);
}

/* The only look at the entry in memory that the switch writes. */
static void nupa_rx_copy_desc(const struct nupa_rxq *rx, u32 index, struct nupa_rx_desc *desc)
{
	const struct nupa_rx_comp *comp = &rx->comp[index & (rx->entries - 1)];

	desc->flags = le16_to_cpu(READ_ONCE(comp->flags));
	desc->bufs = le16_to_cpu(READ_ONCE(comp->bufs));
	desc->long_bufs = le16_to_cpu(READ_ONCE(comp->long_bufs));
	desc->header_bytes = le16_to_cpu(READ_ONCE(comp->header_bytes));
	desc->gso_size = le16_to_cpu(READ_ONCE(comp->gso_size));
	desc->gso_segs = le16_to_cpu(READ_ONCE(comp->gso_segs));
	desc->payload_bytes = nupa_get(&comp->payload_bytes);
	desc->hash = nupa_get(&comp->hash);
	desc->qpn = nupa_get(&comp->qpn);
	desc->joined = false;
}

static const u8 *nupa_rx_header(const struct nupa_rxq *rx, u32 index)
{
	return rx->header_slots + (size_t)(index & (rx->entries - 1)) * NUPA_RX_SLOT_BYTES;
}

/* What may be one packet with @desc, of at most @waiting completions; how many they are. */
static u32 nupa_rx_join_all(struct nupa_queue *q, struct nupa_rx_desc *desc, u32 waiting)
{
	const struct nupa_rxq *rx = &q->rx;
	u32 at = rx->comp_cons, count = 1;
	struct nupa_rx_desc next;

	for (; count < min_t(u32, waiting, NUPA_RX_JOIN_MAX); count++) {
		nupa_rx_copy_desc(rx, at + count, &next);
		if (!nupa_rx_join(desc, nupa_rx_header(rx, at + count - 1), &next,
				  nupa_rx_header(rx, at + count)))
			break;
	}
	return count;
}

/* How many of the @waiting completions were taken; 0: the rings are out of step. */
static u32 nupa_rx_one(struct nupa_queue *q, u32 waiting)
{
	struct nupa_rxq *rx = &q->rx;
	struct nupa_rx_desc desc;
	bool fatal = false;
	struct sk_buff *skb;
	u32 count = 1;

	nupa_rx_copy_desc(rx, rx->comp_cons, &desc);
	if (!nupa_rx_check(q, &desc, &fatal))
		return !fatal;
	if (desc.flags & NUPA_RX_F_COMPLETED)
		count = nupa_rx_join_all(q, &desc, waiting);
	if (count > 1)
		nupa_rx_count(q, NUPA_RXS_joined_packets, count);
	skb = nupa_rx_skb(q, &desc, nupa_rx_header(rx, rx->comp_cons + count - 1));
	if (!skb)
		return count;
	/* software GRO would lose message boundaries, and mix what can be read with what can't */
	if (desc.flags & NUPA_RX_F_QP || rx->fill.device) {
		skb_mark_napi_id(skb, &q->napi);	/* as GRO does: for who polls this queue */
		netif_receive_skb(skb);
	} else {
		napi_gro_receive(&q->napi, skb);
	}
	return count;
}

static u32 nupa_rx_waiting(struct nupa_queue *q)
{
	struct nupa_rxq *rx = &q->rx;
	u32 waiting = nupa_get_acquire(&rx->ctl->comp_prod) - rx->comp_cons;

	if (waiting <= rx->entries)
		return waiting;
	nupa_fail(q->nupa, "receive producer index out of range");
	return 0;
}

int nupa_rx_poll(struct nupa_queue *q, int budget)
{
	struct nupa_rxq *rx = &q->rx;
	u32 waiting = 0, taken;
	int done = 0;

	nupa_rx_count(q, NUPA_RXS_polls, 1);
	while (done < budget && !nupa_failed(q->nupa)) {
		if (!waiting)
			waiting = nupa_rx_waiting(q);
		if (!waiting)
			break;
		taken = nupa_rx_one(q, waiting);
		if (!taken) {
			nupa_fail(q->nupa, "receive completion does not match the buffers");
			break;
		}
		waiting -= taken;
		done++;
		smp_store_release(&rx->comp_cons, rx->comp_cons + taken);	/* pairs with nupa_rx_passed() */
		if (done % NUPA_RX_PUBLISH_PACKETS == 0)
			nupa_put_release(&rx->ctl->comp_cons, rx->comp_cons);
		nupa_rx_refill(q);
		nupa_rx_refill_long(q);
	}
	nupa_rx_refill(q);
	nupa_mode_look(q->nupa);
	nupa_put_release(&rx->ctl->comp_cons, rx->comp_cons);
	return done;
}

bool nupa_rx_arm(struct nupa_queue *q)
{
	struct nupa_rxq *rx = &q->rx;

	if (nupa_failed(q->nupa))
		return false;
	nupa_put(&rx->ctl->irq_event, rx->comp_cons);
	virt_mb();		/* the event before comp_prod */
	return nupa_get(&rx->ctl->comp_prod) != rx->comp_cons;
}

bool nupa_rx_quiet(const struct nupa_queue *q)
{
	const struct nupa_rxq *rx = &q->rx;
	u32 cons;

	if (!(q->nupa->features & NUPA_FEAT_QUIET) || napi_is_scheduled((struct napi_struct *)&q->napi))
		return false;
	cons = READ_ONCE(rx->comp_cons);
	return nupa_get_acquire(&rx->ctl->comp_prod) != cons &&
	       (s32)(nupa_get(&rx->ctl->signalled) - cons) <= 0;
}

bool nupa_rx_is_empty(const struct nupa_queue *q)
{
	return nupa_get_acquire(&q->rx.ctl->comp_prod) == READ_ONCE(q->rx.comp_cons);
}

bool nupa_rx_passed(struct nupa_queue *q, unsigned long until)
{
	u32 end = nupa_get_acquire(&q->rx.ctl->comp_prod);

	while ((s32)(end - smp_load_acquire(&q->rx.comp_cons)) > 0) {	/* pairs with nupa_rx_poll() */
		if (nupa_failed(q->nupa) || time_after(jiffies, until))
			return false;
		local_bh_disable();
		napi_schedule(&q->napi);	/* it may be quiet, and then has no interrupt */
		local_bh_enable();
		usleep_range(NUPA_RX_PASSED_LOOK_US, 2 * NUPA_RX_PASSED_LOOK_US);
	}
	return true;
}

bool nupa_rx_due(struct nupa_queue *q)
{
	u32 cons = READ_ONCE(q->rx.comp_cons), prod = nupa_get_acquire(&q->rx.ctl->comp_prod);
	u32 now_us = local_clock() >> 10, most_us = READ_ONCE(q->nupa->rx_hold_us) / NUPA_RX_LATER_SHARE;

	/* no look at the ring, which may be another one by now */
	if (!(q->nupa->features & NUPA_FEAT_LATER) || prod - cons >= NUPA_RX_LATER_MAX ||
	    (s32)(nupa_get(&q->rx.ctl->hurry) - cons) > 0)
		return true;
	if (READ_ONCE(q->rx.later_cons) != cons) {
		WRITE_ONCE(q->rx.later_us, now_us);
		WRITE_ONCE(q->rx.later_cons, cons);
	} else if (now_us - READ_ONCE(q->rx.later_us) >= most_us) {
		return true;
	}
	nupa_put(&q->rx.ctl->seen, prod);
	return false;
}

void nupa_rx_wake(struct nupa_queue *q)
{
	struct nupa_rxq *rx = &q->rx;
	u32 prod = nupa_get_acquire(&rx->ctl->comp_prod), cons = READ_ONCE(rx->comp_cons);
	u32 at = rx->woken;

	if (prod - cons > rx->entries)
		return;			/* NAPI says so */
	if (prod - at > prod - cons)
		at = cons;
	for (; at != prod; at++) {
		const struct nupa_rx_comp *comp = &rx->comp[at & (rx->entries - 1)];

		if (le16_to_cpu(READ_ONCE(comp->flags)) & NUPA_RX_F_WAKE)
			nupa_cq_came(q->nupa, nupa_get(&comp->cq));
	}
	rx->woken = prod;
}

/* After napi_disable(), which keeps NAPI from starting the timer again. */
void nupa_rx_quiesce(struct nupa_queue *q)
{
	timer_delete_sync(&q->rx_retry);
}
