// SPDX-License-Identifier: GPL-2.0
/* Module: a platform device to do DMA by, two NICs, their offload devices. */
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include "softnic.h"

struct platform_device *snic_platform;
struct page *snic_zero_page;
static struct net_device *snic_netdevs[SNIC_COUNT];

void *snic_memory(dma_addr_t addr)
{
	return phys_to_virt(dma_to_phys(&snic_platform->dev, addr));
}

/* An IOMMU or a bounce buffer would put something else at a DMA address. */
static int snic_check_dma(void)
{
	struct device *dev = &snic_platform->dev;
	dma_addr_t addr;
	bool same;
	int err;

	err = dma_coerce_mask_and_coherent(dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	addr = dma_map_page(dev, snic_zero_page, 0, PAGE_SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -EIO;
	same = snic_memory(addr) == page_address(snic_zero_page);
	dma_unmap_page(dev, addr, PAGE_SIZE, DMA_TO_DEVICE);
	return same ? 0 : -EOPNOTSUPP;
}

static void snic_destroy_netdevs(void)
{
	u32 i;

	for (i = 0; i < SNIC_COUNT; i++)
		if (snic_netdevs[i])
			free_netdev(snic_netdevs[i]);
}

static int snic_create_netdevs(void)
{
	struct snic_nic *nic[SNIC_COUNT];
	u32 i;

	for (i = 0; i < SNIC_COUNT; i++) {
		snic_netdevs[i] = snic_netdev_create(i);
		if (!snic_netdevs[i])
			return -ENOMEM;
		nic[i] = netdev_priv(snic_netdevs[i]);
	}
	nic[0]->peer = nic[1];
	nic[1]->peer = nic[0];
	return 0;
}

/* First what uses the NIC's tables, then the NIC. */
static void snic_remove_all(void)
{
	u32 i;

	for (i = 0; i < SNIC_COUNT; i++)
		snic_offload_remove(netdev_priv(snic_netdevs[i]));
	for (i = 0; i < SNIC_COUNT; i++)
		if (snic_netdevs[i]->reg_state == NETREG_REGISTERED)
			unregister_netdev(snic_netdevs[i]);
}

static int snic_add_all(void)
{
	int err = 0;
	u32 i;

	for (i = 0; !err && i < SNIC_COUNT; i++)
		err = register_netdev(snic_netdevs[i]);
	for (i = 0; !err && i < SNIC_COUNT; i++)
		err = snic_offload_add(netdev_priv(snic_netdevs[i]));
	if (err)
		snic_remove_all();
	return err;
}

static int __init snic_init(void)
{
	int err = -ENOMEM;

	snic_zero_page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!snic_zero_page)
		return -ENOMEM;
	snic_platform = platform_device_register_simple("softnic", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(snic_platform)) {
		err = PTR_ERR(snic_platform);
		goto free_page;
	}
	err = snic_check_dma();
	if (!err)
		err = snic_create_netdevs();
	if (!err)
		err = snic_add_all();
	if (!err)
		return 0;
	snic_destroy_netdevs();
	platform_device_unregister(snic_platform);
free_page:
	put_page(snic_zero_page);
	return err;
}

static void __exit snic_exit(void)
{
	snic_remove_all();
	snic_destroy_netdevs();
	platform_device_unregister(snic_platform);
	put_page(snic_zero_page);	/* packets in TCP's queues have references of their own */
}

module_init(snic_init);
module_exit(snic_exit);

MODULE_DESCRIPTION("Test: two NICs on a wire that place queue pair payload in software");
MODULE_LICENSE("GPL");
