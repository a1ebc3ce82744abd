// SPDX-License-Identifier: GPL-2.0
/* NIC drivers that place queue pair payload: see tqp_offload.h. */
#include <linux/module.h>
#include "offload/offload.h"

struct tqp_offload_entry {
	struct list_head node;
	struct tqp_offload_device *odev;
};

static DEFINE_MUTEX(tqp_offload_mutex);		/* innermost */
static LIST_HEAD(tqp_offloads);
static void (*tqp_offload_gone)(struct tqp_offload_device *odev);

struct tqp_offload_device *tqp_offload_find(const struct net_device *netdev)
{
	struct tqp_offload_device *odev = NULL;
	struct tqp_offload_entry *entry;

	mutex_lock(&tqp_offload_mutex);
	list_for_each_entry(entry, &tqp_offloads, node)
		if (entry->odev->netdev == netdev)
			odev = entry->odev;
	mutex_unlock(&tqp_offload_mutex);
	return odev;
}

/* A driver that is not finished yet has no QPs, rather than a crash at the first one. */
static bool tqp_offload_complete(const struct tqp_offload_device *odev)
{
	const struct tqp_offload_ops *ops = odev->ops;

	return odev->netdev && odev->dma_dev && ops && ops->mr_reg && ops->mr_dereg &&
	       ops->qp_create && ops->qp_destroy;
}

static int tqp_offload_probe(struct auxiliary_device *adev, const struct auxiliary_device_id *id)
{
	struct tqp_offload_entry *entry;

	if (!tqp_offload_complete(to_tqp_offload_device(adev)))
		return -EINVAL;
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return -ENOMEM;
	entry->odev = to_tqp_offload_device(adev);
	auxiliary_set_drvdata(adev, entry);
	mutex_lock(&tqp_offload_mutex);
	list_add_tail(&entry->node, &tqp_offloads);
	mutex_unlock(&tqp_offload_mutex);
	return 0;
}

/* The RDMA device goes with it: its QPs are in the switch. */
static void tqp_offload_remove(struct auxiliary_device *adev)
{
	struct tqp_offload_entry *entry = auxiliary_get_drvdata(adev);

	mutex_lock(&tqp_offload_mutex);
	list_del(&entry->node);
	mutex_unlock(&tqp_offload_mutex);
	tqp_offload_gone(entry->odev);
	kfree(entry);
}

static const struct auxiliary_device_id tqp_offload_ids[] = {
	{ .name = TQP_OFFLOAD_ADEV_MODULE "." TQP_OFFLOAD_ADEV_NAME },
	{}
};
MODULE_DEVICE_TABLE(auxiliary, tqp_offload_ids);

static struct auxiliary_driver tqp_offload_driver = {
	.name = "offload",
	.probe = tqp_offload_probe,
	.remove = tqp_offload_remove,
	.id_table = tqp_offload_ids,
};

int tqp_offload_init(void (*gone)(struct tqp_offload_device *odev))
{
	tqp_offload_gone = gone;
	return auxiliary_driver_register(&tqp_offload_driver);
}

void tqp_offload_exit(void)
{
	auxiliary_driver_unregister(&tqp_offload_driver);
}
