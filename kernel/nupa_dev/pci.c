// SPDX-License-Identifier: GPL-2.0
/* The PCI function: an ivshmem device whose shared memory says it is a NUPA port. */
#include <linux/iopoll.h>
#include <linux/module.h>
#include <linux/pci.h>
#include "nupa.h"

enum {
	NUPA_BAR_DOORBELL = 0,
	NUPA_BAR_SHARED = 2,
	NUPA_BAR0_BYTES_MIN = 256,
	NUPA_VECTORS_MIN = 2,		/* events, and one queue pair */
};

struct nupa_bars {
	void __iomem *bar0;
	void *bar2;
};

/*
 * Shared memory in which somebody has written over the magic is restored by its
 * switch before long.  Of somebody else's device nothing is expected.
 */
static void nupa_regs_wait(struct pci_dev *pdev, const struct nupa_regs *regs)
{
	u32 magic;

	if (pci_msix_vec_count(pdev) == NUPA_VECTORS)
		read_poll_timeout(nupa_get, magic, magic == NUPA_MAGIC,
				  NUPA_HEAL_POLL_MS * USEC_PER_MSEC, NUPA_HEAL_MS * USEC_PER_MSEC,
				  false, &regs->magic);
}

/* Everything the driver relies on later, read once. */
static int nupa_regs_check(struct pci_dev *pdev, const struct nupa_regs *regs)
{
	u16 queue_pairs = le16_to_cpu(READ_ONCE(regs->queue_pairs));

	if (nupa_get(&regs->magic) != NUPA_MAGIC) {
		dev_err(&pdev->dev, "no NUPA switch behind this device: magic %#x\n",
			nupa_get(&regs->magic));
		return -ENODEV;
	}
	if (le16_to_cpu(READ_ONCE(regs->abi_major)) != NUPA_ABI_MAJOR) {
		dev_err(&pdev->dev, "ABI %u.%u, this driver speaks %u\n",
			le16_to_cpu(READ_ONCE(regs->abi_major)),
			le16_to_cpu(READ_ONCE(regs->abi_minor)), NUPA_ABI_MAJOR);
		return -ENODEV;
	}
	if (!queue_pairs || queue_pairs > NUPA_QUEUE_PAIRS_MAX) {
		dev_err(&pdev->dev, "%u queue pairs\n", queue_pairs);
		return -EPROTO;
	}
	return 0;
}

static int nupa_bars_map(struct pci_dev *pdev, struct nupa_bars *bars)
{
	int err;

	if (pci_resource_len(pdev, NUPA_BAR_DOORBELL) < NUPA_BAR0_BYTES_MIN ||
	    pci_resource_len(pdev, NUPA_BAR_SHARED) != NUPA_BAR2_BYTES)
		return -ENODEV;		/* an accelerator's is larger (nupa_accel_hw.h) */
	bars->bar2 = memremap(pci_resource_start(pdev, NUPA_BAR_SHARED), NUPA_BAR2_BYTES,
			      MEMREMAP_WB);
	if (!bars->bar2)
		return -ENOMEM;
	nupa_regs_wait(pdev, bars->bar2);
	err = nupa_regs_check(pdev, bars->bar2);
	if (err)
		goto unmap;
	err = -ENOMEM;
	bars->bar0 = pci_iomap(pdev, NUPA_BAR_DOORBELL, 0);
	if (!bars->bar0)
		goto unmap;
	return 0;
unmap:
	memunmap(bars->bar2);
	return err;
}

static void nupa_bars_unmap(struct pci_dev *pdev, struct nupa_bars *bars)
{
	pci_iounmap(pdev, bars->bar0);
	memunmap(bars->bar2);
}

static int nupa_pci_enable(struct pci_dev *pdev)
{
	int err = pci_enable_device(pdev);

	if (err)
		return err;
	err = pci_request_regions(pdev, NUPA_NAME);
	if (err)
		goto disable;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		goto release;
	/* a fragment may be one whole TSO burst */
	dma_set_max_seg_size(&pdev->dev, NUPA_TSO_MAX_BYTES);
	pci_set_master(pdev);
	return 0;
release:
	pci_release_regions(pdev);
disable:
	pci_disable_device(pdev);
	return err;
}

static void nupa_pci_disable(struct pci_dev *pdev)
{
	pci_clear_master(pdev);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
}

/* Reset whatever an earlier driver left, then bring the command ring to life. */
static int nupa_hw_start(struct nupa_dev *nupa)
{
	int err;

	err = nupa_admin_alloc(nupa);
	if (err)
		return err;
	err = request_irq(pci_irq_vector(nupa->pdev, 0), nupa_event_isr, 0, pci_name(nupa->pdev),
			  nupa);
	if (err)
		goto free_admin;
	err = nupa_reset(nupa);
	if (err)
		goto free_irq;
	err = nupa_enable(nupa);
	if (err)
		goto reset;
	return 0;
reset:
	nupa_reset(nupa);
free_irq:
	free_irq(pci_irq_vector(nupa->pdev, 0), nupa);
free_admin:
	nupa_admin_free(nupa);
	return err;
}

static void nupa_hw_stop(struct nupa_dev *nupa)
{
	nupa_reset(nupa);
	free_irq(pci_irq_vector(nupa->pdev, 0), nupa);
	nupa_admin_free(nupa);
}

static int nupa_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct net_device *netdev;
	struct nupa_bars bars;
	struct nupa_dev *nupa;
	int err, vectors;

	err = nupa_pci_enable(pdev);
	if (err)
		return err;
	err = nupa_bars_map(pdev, &bars);
	if (err)
		goto disable;
	vectors = pci_alloc_irq_vectors(pdev, NUPA_VECTORS_MIN, NUPA_VECTORS, PCI_IRQ_MSIX);
	if (vectors < 0) {
		err = vectors;
		goto unmap;
	}
	err = -ENOMEM;
	netdev = nupa_netdev_alloc(pdev, bars.bar2, vectors - 1);
	if (!netdev)
		goto free_vectors;
	nupa = netdev_priv(netdev);
	nupa->bar0 = bars.bar0;
	nupa->bar2 = bars.bar2;
	nupa->regs = bars.bar2;
	nupa_recover_init(nupa);
	nupa_beat_init(nupa);
	pci_set_drvdata(pdev, nupa);

	err = nupa_hw_start(nupa);
	if (err)
		goto free_netdev;
	err = nupa_netdev_init(nupa);
	if (err)
		goto stop_hw;
	nupa_debugfs_add(nupa);
	nupa_hbm_port_add(nupa);
	err = nupa_qp_add(nupa);
	if (err)
		goto remove_hbm;
	nupa_recover_start(nupa);
	nupa_beat_start(nupa);
	return 0;
remove_hbm:
	nupa_hbm_port_remove(nupa);
	nupa_debugfs_remove(nupa);
	nupa_netdev_exit(nupa);
stop_hw:
	nupa_hw_stop(nupa);
free_netdev:
	free_netdev(netdev);
free_vectors:
	pci_free_irq_vectors(pdev);
unmap:
	nupa_bars_unmap(pdev, &bars);
disable:
	nupa_pci_disable(pdev);
	return err;
}

static void nupa_remove(struct pci_dev *pdev)
{
	struct nupa_dev *nupa = pci_get_drvdata(pdev);
	struct nupa_bars bars = { .bar0 = nupa->bar0, .bar2 = nupa->bar2 };

	nupa_beat_stop(nupa);
	nupa_recover_stop(nupa);
	if (!pci_device_is_present(pdev))
		nupa_fail(nupa, "unplugged");
	rtnl_lock();
	netdev_lock(nupa->netdev);
	if (nupa_failed(nupa))
		nupa_netdev_halt(nupa);
	netdev_unlock(nupa->netdev);
	rtnl_unlock();
	nupa_qp_remove(nupa);
	nupa_hbm_port_remove(nupa);
	nupa_debugfs_remove(nupa);
	nupa_netdev_exit(nupa);
	nupa_hw_stop(nupa);
	free_netdev(nupa->netdev);
	pci_free_irq_vectors(pdev);
	nupa_bars_unmap(pdev, &bars);
	nupa_pci_disable(pdev);
}

/* Reboot and kexec: the switch must not write into the next kernel. */
static void nupa_shutdown(struct pci_dev *pdev)
{
	struct nupa_dev *nupa = pci_get_drvdata(pdev);

	nupa_beat_stop(nupa);
	nupa_recover_stop(nupa);
	rtnl_lock();
	netdev_lock(nupa->netdev);
	netif_device_detach(nupa->netdev);
	netif_close(nupa->netdev);
	netdev_unlock(nupa->netdev);
	rtnl_unlock();
	nupa_reset(nupa);
	pci_clear_master(pdev);
}

static const struct pci_device_id nupa_ids[] = {
	{ PCI_DEVICE(NUPA_PCI_VENDOR, NUPA_PCI_DEVICE) },
	{}
};
MODULE_DEVICE_TABLE(pci, nupa_ids);

static struct pci_driver nupa_driver = {
	.name = NUPA_NAME,
	.id_table = nupa_ids,
	.probe = nupa_probe,
	.remove = nupa_remove,
	.shutdown = nupa_shutdown,
};

static int __init nupa_init(void)
{
	int err;

	nupa_debugfs_init();
	err = nupa_hbm_init();
	if (err)
		goto exit_debugfs;
	err = pci_register_driver(&nupa_driver);
	if (err)
		goto exit_hbm;
	return 0;
exit_hbm:
	nupa_hbm_exit();
exit_debugfs:
	nupa_debugfs_exit();
	return err;
}

static void __exit nupa_exit(void)
{
	pci_unregister_driver(&nupa_driver);
	nupa_hbm_exit();
	nupa_debugfs_exit();
}

module_init(nupa_init);
module_exit(nupa_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Network and queue pair offload driver of a NUPA switch port");
