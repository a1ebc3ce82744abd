// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of other devices of this host (kernel/include/nupa_hbm.h): each port
 * tells its switch where it lies, and a switch that was not given that memory
 * refuses.  What lies at an address without a window is no memory to a switch.
 */
#include <linux/iopoll.h>
#include <linux/list.h>
#include <linux/module.h>
#include <nupa_hbm.h>
#include "nupa.h"

static DEFINE_MUTEX(nupa_hbm_lock);	/* both lists; inside the netdev's lock, around the command ring's */
static LIST_HEAD(nupa_hbm_ports);
static struct nupa_hbm *nupa_hbms[NUPA_WINDOWS_MAX];	/* [window], the same for all ports */

static void nupa_window_put(struct nupa_dev *nupa, u32 window, u64 base, u64 end)
{
	/*
	 * Who finds an end finds its base, too: a window without one keeps the base of before.
	 * Whoever transmits looks before he posts, and nupa_hbm_drain() waits for both.
	 */
	if (end)
		WRITE_ONCE(nupa->windows[window].base, base);
	smp_store_release(&nupa->windows[window].end, end);	/* pairs with nupa_hbm_reaches() */
}

bool nupa_hbm_reaches(const struct nupa_dev *nupa, dma_addr_t addr, u32 bytes)
{
	for (u32 i = 0; i < NUPA_WINDOWS_MAX; i++)
		if (addr + bytes <= smp_load_acquire(&nupa->windows[i].end) &&	/* before the base */
		    addr >= READ_ONCE(nupa->windows[i].base))
			return true;
	return false;
}

/*
 * Memory that a dma-buf's exporter has mapped may lie anywhere on the bus, and any user may send
 * from it or receive into it.  A switch stops a port that names what it can't reach.
 */
bool nupa_reaches(const struct nupa_dev *nupa, dma_addr_t addr, u32 bytes)
{
	return nupa_hbm_reaches(nupa, addr, bytes) ||
	       (page_is_ram(PHYS_PFN(addr)) && page_is_ram(PHYS_PFN(addr + bytes - 1)));
}

static void nupa_hbm_tell(struct nupa_dev *nupa, u32 window)
{
	const struct nupa_hbm *hbm = nupa_hbms[window];
	struct nupa_admin_cmd cmd = {
		.op = cpu_to_le16(NUPA_ADMIN_WINDOW_SET),
		.id = cpu_to_le32(window),
		.window.base = cpu_to_le64(hbm->base),
		.window.bytes = cpu_to_le64(hbm->bytes),
		.window.memory = cpu_to_le64(hbm->id),
	};
	int err;

	lockdep_assert_held(&nupa_hbm_lock);
	if (!(nupa->features & NUPA_FEAT_WINDOW) || !test_bit(NUPA_S_ENABLED, &nupa->state))
		return;
	err = nupa_admin_submit(nupa, &cmd, NULL);
	if (!err)
		nupa_window_put(nupa, window, hbm->base, hbm->base + hbm->bytes);
	else if (err != -ENOENT)	/* another port's, as the switch's operator decided */
		dev_warn(nupa_device(nupa), "no window to %s (%d)\n", dev_name(&hbm->adev.dev), err);
}

static bool nupa_hbm_passed(const struct nupa_ring_ctl *tx, u32 prod)
{
	return (s32)(nupa_get_acquire(&tx->cons) - prod) >= 0;
}

/*
 * Commands overtake what the transmit rings have, and a switch stops a port that sends from memory
 * without a window.  Rings may go or begin anew meanwhile, so nothing waits for long.
 */
static void nupa_hbm_drain(struct nupa_dev *nupa)
{
	bool passed;

	lockdep_assert_held(&nupa_hbm_lock);
	synchronize_net();		/* who has found the window has posted the packet */
	for (u32 i = 0; i < READ_ONCE(nupa->nr_queues); i++) {
		const struct nupa_ring_ctl *tx = nupa->queues[i].tx.ctl;
		u32 prod = nupa_get(&tx->prod);

		read_poll_timeout(nupa_hbm_passed, passed,
				  passed || !READ_ONCE(nupa->up) || nupa_failed(nupa),
				  NUPA_DRAIN_POLL_US, NUPA_DRAIN_MS * USEC_PER_MSEC, false, tx,
				  prod);
	}
}

static void nupa_hbm_forget(struct nupa_dev *nupa, u32 window)
{
	lockdep_assert_held(&nupa_hbm_lock);
	if (!nupa->windows[window].end)
		return;
	nupa_window_put(nupa, window, 0, 0);
	nupa_hbm_drain(nupa);
	nupa_admin_simple(nupa, NUPA_ADMIN_WINDOW_CLEAR, window);
}

void nupa_hbm_enabled(struct nupa_dev *nupa)
{
	mutex_lock(&nupa_hbm_lock);
	for (u32 i = 0; i < NUPA_WINDOWS_MAX; i++) {
		nupa_window_put(nupa, i, 0, 0);
		if (nupa_hbms[i])
			nupa_hbm_tell(nupa, i);
	}
	mutex_unlock(&nupa_hbm_lock);
}

void nupa_hbm_port_add(struct nupa_dev *nupa)
{
	mutex_lock(&nupa_hbm_lock);
	list_add(&nupa->hbm_node, &nupa_hbm_ports);
	mutex_unlock(&nupa_hbm_lock);
	nupa_hbm_enabled(nupa);
}

void nupa_hbm_port_remove(struct nupa_dev *nupa)
{
	mutex_lock(&nupa_hbm_lock);
	list_del(&nupa->hbm_node);
	mutex_unlock(&nupa_hbm_lock);
}

static int nupa_hbm_probe(struct auxiliary_device *adev, const struct auxiliary_device_id *id)
{
	struct nupa_dev *nupa;
	int err = -ENOSPC;
	u32 i;

	mutex_lock(&nupa_hbm_lock);
	for (i = 0; i < NUPA_WINDOWS_MAX && nupa_hbms[i]; i++)
		;
	if (i < NUPA_WINDOWS_MAX) {
		nupa_hbms[i] = to_nupa_hbm(adev);
		auxiliary_set_drvdata(adev, &nupa_hbms[i]);
		list_for_each_entry(nupa, &nupa_hbm_ports, hbm_node)
			nupa_hbm_tell(nupa, i);
		err = 0;
	}
	mutex_unlock(&nupa_hbm_lock);
	return err;
}

static void nupa_hbm_remove(struct auxiliary_device *adev)
{
	struct nupa_hbm **at = auxiliary_get_drvdata(adev);
	struct nupa_dev *nupa;

	mutex_lock(&nupa_hbm_lock);
	list_for_each_entry(nupa, &nupa_hbm_ports, hbm_node)
		nupa_hbm_forget(nupa, at - nupa_hbms);
	*at = NULL;
	mutex_unlock(&nupa_hbm_lock);
}

static const struct auxiliary_device_id nupa_hbm_ids[] = {
	{ .name = NUPA_HBM_ADEV_MODULE "." NUPA_HBM_ADEV_NAME },
	{}
};
MODULE_DEVICE_TABLE(auxiliary, nupa_hbm_ids);

static struct auxiliary_driver nupa_hbm_driver = {
	.name = "hbm",
	.id_table = nupa_hbm_ids,
	.probe = nupa_hbm_probe,
	.remove = nupa_hbm_remove,
};

int nupa_hbm_init(void)
{
	return auxiliary_driver_register(&nupa_hbm_driver);
}

void nupa_hbm_exit(void)
{
	auxiliary_driver_unregister(&nupa_hbm_driver);
}
