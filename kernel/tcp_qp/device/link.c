// SPDX-License-Identifier: GPL-2.0
/*
 * RDMA devices come by `rdma link add`.  They go by `rdma link del`, with
 * their netdev, with the offload device, with this module, or with rdma_rxe
 * (which unregisters all of its driver id).
 *
 * Whoever starts it, the core ends with tqp_link_dealloc(), possibly on a
 * thread that is not ours.  It queues the reaper, which waits out that thread
 * (the core's unregistration lock) and then gives up the list's reference.  So
 * when tqp_devices is empty, no code of a device runs any more.
 */
#include <linux/netdevice.h>
#include <rdma/rdma_netlink.h>
#include "cm/cm.h"
#include "device/device.h"
#include "memory/memory.h"
#include "number/number.h"
#include "offload/offload.h"
#include "ud/ud.h"

/*
 * The list, and what of a device is said to be under it in tqp.h.  Inside rtnl
 * and a netdev's own lock.
 */
DEFINE_MUTEX(tqp_devices_mutex);
LIST_HEAD(tqp_devices);
static DECLARE_WAIT_QUEUE_HEAD(tqp_devices_wait);
static u32 tqp_devices_gone;	/* counts them, under tqp_devices_mutex */

static void tqp_device_queue_reap(struct tqp_device *dev)
{
	get_device(&dev->ib.dev);
	if (!queue_work(tqp_wq, &dev->reap_work))
		put_device(&dev->ib.dev);
}

/* Unregister, now or when registration is over. */
void tqp_device_queue_removal(struct tqp_device *dev)
{
	lockdep_assert_held(&tqp_devices_mutex);
	WRITE_ONCE(dev->removed, true);
	tqp_device_queue_reap(dev);
}

void tqp_link_reap(struct work_struct *work)
{
	struct tqp_device *dev = container_of(work, struct tqp_device, reap_work);
	bool last = false;

	/* Returns when nobody unregisters any more; not registered yet is fine too. */
	ib_unregister_device(&dev->ib);
	mutex_lock(&tqp_devices_mutex);
	if (dev->dead && !list_empty(&dev->node)) {
		list_del_init(&dev->node);
		WRITE_ONCE(tqp_devices_gone, tqp_devices_gone + 1);
		last = true;
	}
	mutex_unlock(&tqp_devices_mutex);
	if (last) {
		put_device(&dev->ib.dev);
		wake_up_all(&tqp_devices_wait);
	}
	put_device(&dev->ib.dev);
}

/* Its QPs are gone; ends of connections that were aborted may come to theirs later. */
static void tqp_counters_free(struct tqp_device *dev)
{
	struct tqp_counters __percpu *counters = dev->counters;

	WRITE_ONCE(dev->counters, NULL);
	synchronize_rcu();	/* tqp_ep_count() */
	free_percpu(counters);
}

void tqp_link_dealloc(struct ib_device *ib)
{
	struct tqp_device *dev = to_tqp_device(ib);

	WARN_ON_ONCE(!xa_empty(&dev->qps));
	WARN_ON_ONCE(!xa_empty(&dev->mws));
	WARN_ON_ONCE(!xa_empty(&dev->uds));
	WARN_ON_ONCE(!xa_empty(&dev->ahs));
	tqp_ud_del_device(dev);
	xa_destroy(&dev->qps);
	xa_destroy(&dev->uds);
	xa_destroy(&dev->ahs);
	tqp_mr_table_destroy(dev);
	xa_destroy(&dev->mws);
	ida_destroy(&dev->pds);
	tqp_shadow_exit(dev);
	tqp_counters_free(dev);
	mutex_lock(&tqp_devices_mutex);
	dev->dead = true;
	netdev_put(dev->netdev, &dev->netdev_tracker);
	mutex_unlock(&tqp_devices_mutex);
	tqp_device_queue_reap(dev);
}

static bool tqp_link_exists(const struct net_device *netdev)
{
	struct tqp_device *dev;

	lockdep_assert_held(&tqp_devices_mutex);
	list_for_each_entry(dev, &tqp_devices, node)
		if (!dev->dead && dev->netdev == netdev)
			return true;
	return false;
}

/* From here on the netdev's notifier and the offload's removal find the device. */
static int tqp_link_enlist(struct tqp_device *dev)
{
	int ret = -EEXIST;

	mutex_lock(&tqp_devices_mutex);
	if (!tqp_link_exists(dev->netdev)) {
		dev->offload = tqp_offload_find(dev->netdev);
		ret = tqp_shadow_init(dev);
	}
	if (!ret) {
		get_device(&dev->ib.dev);
		list_add_tail(&dev->node, &tqp_devices);
	}
	mutex_unlock(&tqp_devices_mutex);
	return ret;
}

/* Who has the port already may let go of it: a UD QP tries again. */
static void tqp_link_open_ud(struct tqp_device *dev)
{
	int ret = tqp_ud_open(dev);

	tqp_ud_add_device(dev);
	if (ret && ret != -EOPNOTSUPP)
		netdev_notice(dev->netdev, "tcp_qp: UDP port %u: error %d, no UD queue pairs\n",
			      tqp_ud_port(), ret);
}

static int tqp_link_create(const char *name, struct net_device *netdev)
{
	struct tqp_device *dev;
	int ret;

	dev = tqp_device_alloc(netdev);
	if (!dev)
		return -ENOMEM;
	/* Once registered, others may take it away at any time. */
	get_device(&dev->ib.dev);
	ret = tqp_link_enlist(dev);
	if (ret)
		goto out_dealloc;
	tqp_link_open_ud(dev);
	ib_mark_name_assigned_by_user(&dev->ib);
	/*
	 * No dma_device: MRs map themselves for the offload device, since
	 * pinned pages may outlive it.
	 */
	ret = ib_register_device(&dev->ib, name, NULL);
	if (ret)
		goto out_dealloc;
	if (READ_ONCE(dev->removed) || READ_ONCE(netdev->reg_state) != NETREG_REGISTERED)
		tqp_device_queue_reap(dev);
	goto out_put;

out_dealloc:
	ib_dealloc_device(&dev->ib);
out_put:
	put_device(&dev->ib.dev);
	return ret;
}

static struct rdma_link_ops tqp_link_ops = {
	.type = TCP_QP_ULP_NAME,
	.newlink = tqp_link_create,
};
MODULE_ALIAS_RDMA_LINK(TCP_QP_ULP_NAME);

/* Remove what is not being removed yet; true if nothing of @odev (all if NULL) is left. */
static bool tqp_link_queue_removals(const struct tqp_offload_device *odev)
{
	struct tqp_device *dev;
	bool none = true;

	mutex_lock(&tqp_devices_mutex);
	list_for_each_entry(dev, &tqp_devices, node) {
		if (odev && dev->offload != odev)
			continue;
		none = false;
		if (!dev->removed)
			tqp_device_queue_removal(dev);
	}
	mutex_unlock(&tqp_devices_mutex);
	return none;
}

void tqp_link_remove(struct tqp_offload_device *odev)
{
	u32 seen = READ_ONCE(tqp_devices_gone);

	while (!tqp_link_queue_removals(odev)) {
		wait_event(tqp_devices_wait, READ_ONCE(tqp_devices_gone) != seen);
		seen = READ_ONCE(tqp_devices_gone);
	}
}

static void tqp_link_wake_attaches(struct tqp_device *dev)
{
	unsigned long index, flags;
	struct tqp_qp *qp;

	/* A QP leaves the table before it is freed. */
	xa_lock(&dev->qps);
	xa_for_each(&dev->qps, index, qp) {
		spin_lock_irqsave(&qp->lock, flags);
		if (qp->conn)
			wake_up_all(&qp->conn->wait);
		spin_unlock_irqrestore(&qp->lock, flags);
	}
	xa_unlock(&dev->qps);
}

/*
 * The core removes clients newest first, so this runs before uverbs waits for
 * its commands: an attach that waits for its peer must give way.
 */
static void tqp_client_remove(struct ib_device *ib, void *data)
{
	struct tqp_device *dev = to_tqp_device(ib);

	tqp_number_remove_device(dev);
	WRITE_ONCE(dev->leave_by, jiffies + msecs_to_jiffies(TQP_LEAVE_MS));
	smp_store_release(&dev->leaving, true);	/* who sees it sees the time */
	tqp_link_wake_attaches(dev);
	tqp_cm_abort_device(dev);
}

static int tqp_client_add(struct ib_device *ib)
{
	if (ib->ops.dealloc_driver != tqp_link_dealloc)
		return -EOPNOTSUPP;
	/* It may come back, in another network namespace. */
	WRITE_ONCE(to_tqp_device(ib)->leaving, false);
	tqp_number_add_device(to_tqp_device(ib));
	/*
	 * The core has read the addresses already, and was told of no change since.  It reads them
	 * again by taking each GID away for a moment: only where that changes anything.
	 */
	if (!tqp_gids_are_read(ib))
		tqp_device_event(to_tqp_device(ib), IB_EVENT_GID_CHANGE);
	return 0;
}

static struct ib_client tqp_client = {
	.name = TCP_QP_ULP_NAME,
	.add = tqp_client_add,
	.remove = tqp_client_remove,
};

int tqp_link_init(void)
{
	int ret;

	ret = ib_register_client(&tqp_client);
	if (ret)
		return ret;
	rdma_link_register(&tqp_link_ops);
	return 0;
}

void tqp_link_exit(void)
{
	rdma_link_unregister(&tqp_link_ops);
	tqp_link_remove(NULL);
	ib_unregister_client(&tqp_client);
}
