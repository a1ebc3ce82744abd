// SPDX-License-Identifier: GPL-2.0
/*
 * Is the switch alive?
 *
 * A switch that ends says so in its status.  One that was killed, or hangs,
 * does not: but its heartbeat stops.  Nobody else would tell, as QEMU keeps the
 * device when its server is gone.  Looked at once in NUPA_BEAT_MS; beats are
 * counted, not timed, so that a guest that was stopped misses none.
 */
#include "nupa.h"

static void nupa_beat_missed(struct nupa_dev *nupa)
{
	nupa->beats_missed++;
	if (nupa->beats_missed == NUPA_BEATS_LINK) {
		set_bit(NUPA_S_SILENT, &nupa->state);
		nupa_link_update(nupa);
	} else if (nupa->beats_missed == NUPA_BEATS_DEAD) {
		nupa_fail(nupa, "the switch is silent");
	}
}

static void nupa_beat_seen(struct nupa_dev *nupa, u32 beat)
{
	nupa->beat = beat;
	nupa->beats_missed = 0;
	if (test_and_clear_bit(NUPA_S_SILENT, &nupa->state))
		nupa_link_update(nupa);
}

/*
 * What the switch never does to a port that was not reset, but its own host may.
 * The switch heals what is its own, and does not know what is ours.
 */
static void nupa_beat_check(struct nupa_dev *nupa)
{
	u32 status = nupa_get_acquire(&nupa->regs->status);

	if (!test_bit(NUPA_S_ENABLED, &nupa->state))
		return;
	if (nupa_get(&nupa->regs->magic) != NUPA_MAGIC || !(status & NUPA_STATUS_READY) ||
	    nupa_get(&nupa->regs->control) != NUPA_CONTROL_ENABLE)
		nupa_fail(nupa, "the registers were written over, or the switch forgot this driver");
}

static void nupa_beat(struct work_struct *work)
{
	struct nupa_dev *nupa = container_of(to_delayed_work(work), struct nupa_dev, beat_work);
	u32 beat = nupa_get(&nupa->regs->beat);

	if (beat == nupa->beat)
		nupa_beat_missed(nupa);
	else
		nupa_beat_seen(nupa, beat);
	nupa_link_update(nupa);		/* an interrupt may be lost with the switch */
	nupa_beat_check(nupa);
	queue_delayed_work(system_power_efficient_wq, &nupa->beat_work,
			   round_jiffies_relative(msecs_to_jiffies(NUPA_BEAT_MS)));
}

void nupa_beat_init(struct nupa_dev *nupa)
{
	INIT_DELAYED_WORK(&nupa->beat_work, nupa_beat);
}

void nupa_beat_start(struct nupa_dev *nupa)
{
	if (nupa->features & NUPA_FEAT_BEAT)
		queue_delayed_work(system_power_efficient_wq, &nupa->beat_work, 0);
}

void nupa_beat_stop(struct nupa_dev *nupa)
{
	cancel_delayed_work_sync(&nupa->beat_work);
}
