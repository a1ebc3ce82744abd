// SPDX-License-Identifier: GPL-2.0
/* Module: the contract's cases, or a provider that is not finished. */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/rdma_user_rxe.h>
#include "contract.h"

static char *incomplete;
module_param(incomplete, charp, 0444);
MODULE_PARM_DESC(incomplete,
		 "be a provider for this netdev, one without operations, instead of testing one");

/* ---- the cases ---- */

static void *contract_page(struct tqp_offload_device *odev, dma_addr_t *dma)
{
	return dma_alloc_coherent(odev->dma_dev, PAGE_SIZE, dma, GFP_KERNEL);
}

static void contract_page_free(struct tqp_offload_device *odev, void *page, dma_addr_t dma)
{
	if (page)
		dma_free_coherent(odev->dma_dev, PAGE_SIZE, page, dma);
}

/* A failed case is in the log; the device stays with this driver either way. */
static int contract_probe(struct auxiliary_device *adev, const struct auxiliary_device_id *id)
{
	struct contract c = { .odev = to_tqp_offload_device(adev) };
	int err = -ENOMEM;

	c.shadow = contract_page(c.odev, &c.shadow_dma);
	c.ring = contract_page(c.odev, &c.ring_dma);
	c.buffer = contract_page(c.odev, &c.buffer_dma);
	if (c.shadow && c.ring && c.buffer) {
		pr_info("offload_contract: %s: %u failed\n", c.odev->netdev->name, contract_run(&c));
		err = 0;
	}
	contract_page_free(c.odev, c.buffer, c.buffer_dma);
	contract_page_free(c.odev, c.ring, c.ring_dma);
	contract_page_free(c.odev, c.shadow, c.shadow_dma);
	return err;
}

static const struct auxiliary_device_id contract_ids[] = {
	{ .name = TQP_OFFLOAD_ADEV_MODULE "." TQP_OFFLOAD_ADEV_NAME },
	{}
};

static struct auxiliary_driver contract_driver = {
	.name = "contract",
	.probe = contract_probe,
	.id_table = contract_ids,
};

/* ---- a provider without operations ---- */

static struct tqp_offload_device *contract_odev;

static void contract_release(struct device *dev)
{
	kfree(to_tqp_offload_device(to_auxiliary_dev(dev)));
}

static int contract_be_incomplete(void)
{
	static const struct tqp_offload_ops none;
	struct net_device *netdev = dev_get_by_name(&init_net, incomplete);
	struct tqp_offload_device *odev = kzalloc(sizeof(*odev), GFP_KERNEL);
	int err = -ENODEV;

	if (!netdev || !odev)
		goto free;
	odev->adev.name = TQP_OFFLOAD_ADEV_NAME;
	odev->adev.dev.parent = &netdev->dev;
	odev->adev.dev.release = contract_release;
	odev->netdev = netdev;
	odev->dma_dev = &netdev->dev;
	odev->ops = &none;
	err = auxiliary_device_init(&odev->adev);
	if (err)
		goto free;
	err = tqp_offload_device_add(odev);
	if (err) {
		auxiliary_device_uninit(&odev->adev);
		dev_put(netdev);
		return err;
	}
	contract_odev = odev;
	pr_info("offload_contract: %s: without operations, %s\n", incomplete,
		odev->adev.dev.driver ? "bound" : "not bound");
	return 0;
free:
	kfree(odev);
	if (netdev)
		dev_put(netdev);
	return err;
}

static int __init contract_init(void)
{
	return incomplete ? contract_be_incomplete() : auxiliary_driver_register(&contract_driver);
}

static void __exit contract_exit(void)
{
	if (!contract_odev) {
		auxiliary_driver_unregister(&contract_driver);
		return;
	}
	auxiliary_device_delete(&contract_odev->adev);
	dev_put(contract_odev->netdev);
	auxiliary_device_uninit(&contract_odev->adev);
}

module_init(contract_init);
module_exit(contract_exit);

MODULE_DESCRIPTION("Test: the offload contract, held against a provider or against tcp_qp");
MODULE_LICENSE("GPL");
