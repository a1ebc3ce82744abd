// SPDX-License-Identifier: GPL-2.0
/*
 * The wire between the two NICs: it loses, doubles, holds back and spoils frames
 * when asked to.  Seeded, so that a run can be had again.
 */
#include <linux/if_ether.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include "softnic.h"

enum {
	SNIC_PPM = 1000000,
	SNIC_OVERTAKEN_BY_MAX = 8,	/* frames, until a held one goes on */
};

static u32 lose_ppm, double_ppm, hold_ppm, spoil_ppm;
module_param(lose_ppm, uint, 0644);
MODULE_PARM_DESC(lose_ppm, "frames of a million that are lost");
module_param(double_ppm, uint, 0644);
MODULE_PARM_DESC(double_ppm, "... that come twice");
module_param(hold_ppm, uint, 0644);
MODULE_PARM_DESC(hold_ppm, "... that others overtake");
module_param(spoil_ppm, uint, 0644);
MODULE_PARM_DESC(spoil_ppm, "... of which a byte is changed");

static DEFINE_SPINLOCK(snic_dice_lock);
static struct rnd_state snic_dice;

static int snic_seed_set(const char *text, const struct kernel_param *param)
{
	u64 seed;
	int err = kstrtou64(text, 0, &seed);

	if (err)
		return err;
	spin_lock_bh(&snic_dice_lock);
	prandom_seed_state(&snic_dice, seed);
	spin_unlock_bh(&snic_dice_lock);
	return 0;
}

static const struct kernel_param_ops snic_seed_ops = { .set = snic_seed_set };
module_param_cb(seed, &snic_seed_ops, NULL, 0200);
MODULE_PARM_DESC(seed, "of what the wire does from now on");

static u32 snic_dice_below(u32 bound)
{
	u32 value;

	spin_lock(&snic_dice_lock);
	value = prandom_u32_state(&snic_dice);
	spin_unlock(&snic_dice_lock);
	return value % bound;
}

static bool snic_happens(u32 ppm)
{
	return unlikely(ppm) && snic_dice_below(SNIC_PPM) < ppm;
}

/* Not a MAC address: a frame to somebody else is no fault that TCP could see. */
static void snic_spoil(struct snic_nic *nic, struct sk_buff *frame)
{
	if (frame->len <= ETH_HLEN)
		return;
	frame->data[ETH_HLEN + snic_dice_below(frame->len - ETH_HLEN)] ^= 1 + snic_dice_below(255);
	snic_count(nic, SNIC_S_wire_corrupted, 1);
}

static void snic_enqueue(struct snic_nic *nic, struct sk_buff *frame)
{
	lockdep_assert_held(&nic->queue.lock);
	if (nic->up && skb_queue_len(&nic->queue) < SNIC_QUEUE_MAX) {
		__skb_queue_tail(&nic->queue, frame);
		return;
	}
	snic_count(nic, SNIC_S_rx_queue_full, 1);
	kfree_skb(frame);
}

static void snic_release_held(struct snic_nic *nic)
{
	struct sk_buff *frame = nic->held;

	nic->held = NULL;
	if (frame)
		snic_enqueue(nic, frame);
}

void snic_wire_carry(struct snic_nic *nic, struct sk_buff *frame)
{
	struct sk_buff *twin = NULL;
	bool hold;

	if (snic_happens(lose_ppm)) {
		snic_count(nic, SNIC_S_wire_lost, 1);
		kfree_skb(frame);
		return;
	}
	if (snic_happens(spoil_ppm))
		snic_spoil(nic, frame);
	if (snic_happens(double_ppm))
		twin = skb_copy(frame, GFP_ATOMIC);
	hold = snic_happens(hold_ppm);
	spin_lock(&nic->queue.lock);
	if (twin) {
		snic_count(nic, SNIC_S_wire_duplicated, 1);
		snic_enqueue(nic, twin);
	}
	if (hold && nic->up && !nic->held) {
		snic_count(nic, SNIC_S_wire_held, 1);
		nic->held = frame;
	} else {
		snic_enqueue(nic, frame);
		if (nic->held && !snic_dice_below(SNIC_OVERTAKEN_BY_MAX))
			snic_release_held(nic);
	}
	if (nic->up)
		napi_schedule(&nic->napi);
	spin_unlock(&nic->queue.lock);
}

struct sk_buff *snic_wire_take(struct snic_nic *nic)
{
	struct sk_buff *frame;

	spin_lock(&nic->queue.lock);
	if (skb_queue_empty(&nic->queue))	/* nobody came to overtake it */
		snic_release_held(nic);
	frame = __skb_dequeue(&nic->queue);
	spin_unlock(&nic->queue.lock);
	return frame;
}

void snic_wire_open(struct snic_nic *nic, bool open)
{
	spin_lock_bh(&nic->queue.lock);
	nic->up = open;
	if (!open) {
		kfree_skb(nic->held);
		nic->held = NULL;
	}
	spin_unlock_bh(&nic->queue.lock);
	if (!open)
		skb_queue_purge(&nic->queue);
}
