// SPDX-License-Identifier: GPL-2.0
/* Reset, enable, link state, and what happens when a port fails. */
#include <linux/interrupt.h>
#include <linux/iopoll.h>
#include "nupa.h"

/* Its own word, in registers that nobody wrote over: these heal with a reset or a beat. */
bool nupa_switch_gone(const struct nupa_dev *nupa)
{
	return nupa_get_acquire(&nupa->regs->status) & NUPA_STATUS_GONE &&
	       nupa_get(&nupa->regs->magic) == NUPA_MAGIC;
}

static int nupa_control_set(struct nupa_dev *nupa, u32 control)
{
	u32 gen = nupa_get(&nupa->regs->control_gen) + 1;
	u32 ack;

	nupa_put(&nupa->regs->control, control);
	nupa_put_release(&nupa->regs->control_gen, gen);
	if (!control) {
		smp_wmb();	/* pairs with nupa_forgotten() */
		set_bit(NUPA_S_RESET, &nupa->state);
	}
	nupa_doorbell(nupa, 0);
	return read_poll_timeout(nupa_get_acquire, ack, ack == gen, NUPA_RESET_POLL_US,
				 NUPA_RESET_TIMEOUT_MS * USEC_PER_MSEC, false,
				 &nupa->regs->reset_ack);
}

int nupa_reset(struct nupa_dev *nupa)
{
	int err;

	clear_bit(NUPA_S_ENABLED, &nupa->state);
	if (nupa_switch_gone(nupa))
		return 0;
	err = nupa_control_set(nupa, 0);
	if (err)
		dev_err(nupa_device(nupa), "the switch does not acknowledge a reset\n");
	return err;
}

int nupa_enable(struct nupa_dev *nupa)
{
	int err;

	if (nupa_switch_gone(nupa))
		return -ENODEV;
	nupa_admin_restart(nupa);
	clear_bit(NUPA_S_RESET, &nupa->state);
	smp_mb__after_atomic();		/* no other acknowledgement is taken for the reset's */
	err = nupa_control_set(nupa, NUPA_CONTROL_ENABLE);
	if (err) {
		dev_err(nupa_device(nupa), "the switch does not enable the port\n");
		return err;
	}
	clear_bit(NUPA_S_FAILED, &nupa->state);
	set_bit(NUPA_S_ENABLED, &nupa->state);
	err = nupa_admin_simple(nupa, NUPA_ADMIN_NOP, 0);	/* vector 0 works both ways */
	if (!err)
		nupa_link_update(nupa);
	return err;
}

void nupa_link_update(struct nupa_dev *nupa)
{
	const u32 up = NUPA_STATUS_READY | NUPA_STATUS_LINK_UP;
	u32 status = nupa_get_acquire(&nupa->regs->status);

	if (nupa_failed(nupa))
		return;
	if (nupa_switch_gone(nupa)) {
		nupa_fail(nupa, "the switch has ended");
		return;
	}
	if (status & NUPA_STATUS_FAILED) {
		nupa_fail(nupa, "the switch refused what this driver wrote");
		return;
	}
	if ((status & up) == up && READ_ONCE(nupa->up) &&
	    !test_bit(NUPA_S_SILENT, &nupa->state))
		netif_carrier_on(nupa->netdev);
	else
		netif_carrier_off(nupa->netdev);
	smp_mb();		/* pairs with nupa_fail() and nupa_down(): the carrier ends up off */
	if (nupa_failed(nupa) || !READ_ONCE(nupa->up))
		netif_carrier_off(nupa->netdev);
}

irqreturn_t nupa_event_isr(int irq, void *data)
{
	struct nupa_dev *nupa = data;

	wake_up(&nupa->admin.wait);
	nupa_link_update(nupa);
	return IRQ_HANDLED;
}

static void nupa_recover_queue(struct nupa_dev *nupa)
{
	unsigned long next, delay = 0;

	next = READ_ONCE(nupa->recovered_at) + msecs_to_jiffies(NUPA_RECOVER_INTERVAL_MS);
	if (READ_ONCE(nupa->recoveries) && time_before(jiffies, next))
		delay = next - jiffies;
	queue_delayed_work(system_long_wq, &nupa->recover_work, delay);
}

void nupa_fail(struct nupa_dev *nupa, const char *why)
{
	if (!nupa_failed(nupa))
		WRITE_ONCE(nupa->failed_at, jiffies);
	if (test_and_set_bit(NUPA_S_FAILED, &nupa->state))
		return;
	WRITE_ONCE(nupa->failure, why);
	dev_err(nupa_device(nupa), "port failed: %s\n", why);
	smp_mb__after_atomic();		/* pairs with nupa_link_update() */
	netif_carrier_off(nupa->netdev);
	wake_up(&nupa->admin.wait);
	if (test_bit(NUPA_S_RECOVERS, &nupa->state))
		nupa_recover_queue(nupa);
}

static void nupa_recover(struct work_struct *work)
{
	struct nupa_dev *nupa = container_of(to_delayed_work(work), struct nupa_dev, recover_work);
	int err;

	rtnl_lock();
	netdev_lock(nupa->netdev);
	nupa_netdev_halt(nupa);
	netdev_unlock(nupa->netdev);
	rtnl_unlock();
	nupa_qp_remove(nupa);		/* tcp_qp may want RTNL, and what was being sent back */
	rtnl_lock();
	netdev_lock(nupa->netdev);
	err = nupa_netdev_recover(nupa);
	netdev_unlock(nupa->netdev);
	rtnl_unlock();
	WRITE_ONCE(nupa->recovered_at, jiffies);
	WRITE_ONCE(nupa->recoveries, nupa->recoveries + 1);
	if (err) {
		dev_err(nupa_device(nupa), "port is dead (%d)\n", err);
		return;
	}
	err = nupa_qp_add(nupa);
	if (err)
		dev_err(nupa_device(nupa), "port was reset, without queue pair offload (%d)\n", err);
	else
		dev_info(nupa_device(nupa), "port was reset and works again\n");
}

void nupa_recover_init(struct nupa_dev *nupa)
{
	INIT_DELAYED_WORK(&nupa->recover_work, nupa_recover);
}

void nupa_recover_start(struct nupa_dev *nupa)
{
	set_bit(NUPA_S_RECOVERS, &nupa->state);
	smp_mb__after_atomic();		/* nupa_fail() sees the bit, or we see the failure */
	if (nupa_failed(nupa))
		nupa_recover_queue(nupa);
}

void nupa_recover_stop(struct nupa_dev *nupa)
{
	clear_bit(NUPA_S_RECOVERS, &nupa->state);
	cancel_delayed_work_sync(&nupa->recover_work);
}
