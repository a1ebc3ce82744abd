// SPDX-License-Identifier: GPL-2.0
/* The PCI function: an ivshmem device whose shared memory says it is an accelerator, or a pool's window. */
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/iopoll.h>
#include <linux/module.h>
#include <linux/slab.h>
#include "accel.h"

enum {
	NUPA_BAR_DOORBELL = 0,
	NUPA_BAR_SHARED = 2,
	NUPA_BAR0_BYTES_MIN = 256,
};

static DEFINE_IDA(nupa_numbers);
static DEFINE_IDA(nupa_pool_numbers);

static struct ida *nupa_numbers_of(const struct nupa_accel *accel)
{
	return accel->pool ? &nupa_pool_numbers : &nupa_numbers;
}

void nupa_accel_get(struct nupa_accel *accel)
{
	kref_get(&accel->ref);
}

static void nupa_accel_free(struct kref *ref)
{
	struct nupa_accel *accel = container_of(ref, struct nupa_accel, ref);

	kvfree(accel->used_pages);
	ida_free(nupa_numbers_of(accel), accel->number);
	kfree(accel);
}

void nupa_accel_put(struct nupa_accel *accel)
{
	kref_put(&accel->ref, nupa_accel_free);
}

static int nupa_control_set(struct nupa_accel *accel, u32 control)
{
	u32 gen = le32_to_cpu(READ_ONCE(accel->regs->control_gen)) + 1;
	__le32 ack;

	WRITE_ONCE(accel->regs->control, cpu_to_le32(control));
	/* after control: the device loads it with acquire */
	virt_store_release(&accel->regs->control_gen, cpu_to_le32(gen));
	nupa_accel_doorbell(accel);
	return read_poll_timeout(virt_load_acquire, ack, ack == cpu_to_le32(gen),
				 NUPA_ACCEL_RESET_POLL_US,
				 NUPA_ACCEL_RESET_TIMEOUT_MS * USEC_PER_MSEC, false,
				 &accel->regs->reset_ack);
}

/* Everything the driver relies on later, read once. */
static int nupa_regs_check(struct nupa_accel *accel, u64 bar_bytes)
{
	const struct nupa_accel_regs *regs = accel->regs;
	struct device *dev = &accel->pdev->dev;
	u64 at = le64_to_cpu(READ_ONCE(regs->memory_at));

	u32 magic = le32_to_cpu(READ_ONCE(regs->magic));
	u16 speaks = magic == NUPA_POOL_MAGIC ? NUPA_POOL_ABI_MAJOR : NUPA_ACCEL_ABI_MAJOR;

	if (magic != NUPA_ACCEL_MAGIC && magic != NUPA_POOL_MAGIC)
		return -ENODEV;		/* somebody else's */
	if (le16_to_cpu(READ_ONCE(regs->abi_major)) != speaks) {
		dev_err(dev, "ABI %u, this driver speaks %u\n",
			le16_to_cpu(READ_ONCE(regs->abi_major)), speaks);
		return -ENODEV;
	}
	accel->pool = magic == NUPA_POOL_MAGIC;
	accel->id = le64_to_cpu(READ_ONCE(regs->id));
	accel->pool_id = le64_to_cpu(READ_ONCE(regs->pool));
	accel->memory_bytes = le64_to_cpu(READ_ONCE(regs->memory_bytes));
	if (!accel->id || at != NUPA_ACCEL_CONTROL_BYTES ||
	    accel->memory_bytes != bar_bytes - NUPA_ACCEL_CONTROL_BYTES) {
		dev_err(dev, "memory of %#llx bytes at %#llx\n", accel->memory_bytes, at);
		return -EPROTO;
	}
	return 0;
}

static int nupa_bars_map(struct nupa_accel *accel)
{
	struct pci_dev *pdev = accel->pdev;
	u64 bytes = pci_resource_len(pdev, NUPA_BAR_SHARED);
	void *shared;
	int err;

	shared = memremap(pci_resource_start(pdev, NUPA_BAR_SHARED), NUPA_ACCEL_CONTROL_BYTES,
			  MEMREMAP_WB);
	if (!shared)
		return -ENOMEM;
	accel->regs = shared;
	accel->ring = shared + NUPA_ACCEL_RING_AT;
	accel->cmds = shared + NUPA_ACCEL_CMDS_AT;
	accel->comps = shared + NUPA_ACCEL_COMPS_AT;
	err = nupa_regs_check(accel, bytes);
	if (err)
		goto unmap;
	accel->memory = pci_resource_start(pdev, NUPA_BAR_SHARED) + NUPA_ACCEL_CONTROL_BYTES;
	err = -ENOMEM;
	accel->bar0 = pci_iomap(pdev, NUPA_BAR_DOORBELL, 0);
	if (accel->bar0)
		return 0;
unmap:
	memunmap(shared);
	return err;
}

static void nupa_bars_unmap(struct nupa_accel *accel)
{
	pci_iounmap(accel->pdev, accel->bar0);
	memunmap(accel->regs);
}

static irqreturn_t nupa_completion_isr(int irq, void *data)
{
	nupa_ring_poll(data);
	return IRQ_HANDLED;
}

static irqreturn_t nupa_bell_isr(int irq, void *data)
{
	nupa_bells_rang(data);
	return IRQ_HANDLED;
}

static int nupa_irqs_get(struct nupa_accel *accel)
{
	struct pci_dev *pdev = accel->pdev;
	int err;

	err = pci_alloc_irq_vectors(pdev, NUPA_ACCEL_VECTORS, NUPA_ACCEL_VECTORS, PCI_IRQ_MSIX);
	if (err < 0)
		return err;
	err = request_irq(pci_irq_vector(pdev, 0), nupa_completion_isr, 0, accel->name, accel);
	if (err)
		goto free_vectors;
	err = request_irq(pci_irq_vector(pdev, 1), nupa_bell_isr, 0, accel->name, accel);
	if (!err)
		return 0;
	free_irq(pci_irq_vector(pdev, 0), accel);
free_vectors:
	pci_free_irq_vectors(pdev);
	return err;
}

static void nupa_irqs_put(struct nupa_accel *accel)
{
	free_irq(pci_irq_vector(accel->pdev, 1), accel);
	free_irq(pci_irq_vector(accel->pdev, 0), accel);
	pci_free_irq_vectors(accel->pdev);
}

static int nupa_start(struct nupa_accel *accel)
{
	int err;

	err = nupa_control_set(accel, 0);
	if (err) {
		dev_err(&accel->pdev->dev, "the device does not acknowledge a reset\n");
		return err;
	}
	nupa_ring_start(accel);
	return nupa_control_set(accel, NUPA_CONTROL_ENABLE);
}

static struct nupa_accel *nupa_accel_alloc(struct pci_dev *pdev)
{
	struct nupa_accel *accel = kzalloc(sizeof(*accel), GFP_KERNEL);

	if (!accel)
		return NULL;
	kref_init(&accel->ref);
	accel->pdev = pdev;
	nupa_ring_init(accel);
	mutex_init(&accel->buffers_lock);
	INIT_LIST_HEAD(&accel->buffers);
	init_waitqueue_head(&accel->unmapped);
	spin_lock_init(&accel->bell_lock);
	return accel;
}

static int nupa_name(struct nupa_accel *accel)
{
	accel->number = ida_alloc(nupa_numbers_of(accel), GFP_KERNEL);
	if (accel->number < 0)
		return accel->number;
	snprintf(accel->name, sizeof(accel->name), "%s%d",
		 accel->pool ? NUPA_POOL_NAME : NUPA_ACCEL_NAME, accel->number);
	return 0;
}

/* A port's BAR2 is NUPA_BAR2_BYTES; a stranger's ivshmem device is left alone without a word. */
static bool nupa_accel_fits(struct pci_dev *pdev)
{
	return pci_resource_len(pdev, NUPA_BAR_SHARED) >= NUPA_ACCEL_BAR2_BYTES_MIN &&
	       pci_resource_len(pdev, NUPA_BAR_SHARED) <= NUPA_ACCEL_BAR2_BYTES_MAX &&
	       pci_resource_len(pdev, NUPA_BAR_DOORBELL) >= NUPA_BAR0_BYTES_MIN;
}

static int nupa_pci_enable(struct pci_dev *pdev)
{
	int err = pci_enable_device(pdev);

	if (err)
		return err;
	err = pci_request_regions(pdev, NUPA_ACCEL_NAME);
	if (err)
		pci_disable_device(pdev);
	else
		pci_set_master(pdev);
	return err;
}

static void nupa_pci_disable(struct pci_dev *pdev)
{
	pci_clear_master(pdev);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
}

static int nupa_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct nupa_accel *accel;
	int err;

	if (!nupa_accel_fits(pdev))
		return -ENODEV;
	err = nupa_pci_enable(pdev);
	if (err)
		return err;
	err = -ENOMEM;
	accel = nupa_accel_alloc(pdev);
	if (!accel)
		goto disable;
	err = nupa_bars_map(accel);
	if (err)
		goto free;
	err = nupa_name(accel);
	if (err)
		goto unmap;
	err = nupa_irqs_get(accel);
	if (err)
		goto free_number;
	err = nupa_start(accel);
	if (err)
		goto put_irqs;
	err = nupa_memory_init(accel);
	if (err)
		goto stop;
	err = nupa_memory_offer(accel);
	if (err)
		goto exit_memory;
	pci_set_drvdata(pdev, accel);
	err = nupa_file_register(accel);
	if (err)
		goto withdraw;
	return 0;
withdraw:
	nupa_memory_withdraw(accel);
exit_memory:
	nupa_memory_exit(accel);
	kvfree(accel->used_pages);
stop:
	nupa_control_set(accel, 0);
put_irqs:
	nupa_irqs_put(accel);
free_number:
	ida_free(nupa_numbers_of(accel), accel->number);
unmap:
	nupa_bars_unmap(accel);
free:
	kfree(accel);
disable:
	nupa_pci_disable(pdev);
	return err;
}

static void nupa_stop(struct nupa_accel *accel)
{
	if (pci_device_is_present(accel->pdev) && nupa_control_set(accel, 0))
		dev_err(&accel->pdev->dev, "the device does not acknowledge a reset\n");
}

/*
 * An accelerator must not write any more before its buffers are taken; a pool's
 * leases go with its reset, so nobody may be in them by then.
 */
static void nupa_remove(struct pci_dev *pdev)
{
	struct nupa_accel *accel = pci_get_drvdata(pdev);

	nupa_file_unregister(accel);
	if (!accel->pool)
		nupa_stop(accel);
	nupa_ring_end(accel);
	nupa_buffers_take_all(accel);
	nupa_memory_withdraw(accel);
	nupa_memory_exit(accel);
	if (accel->pool)
		nupa_stop(accel);
	nupa_irqs_put(accel);
	/* who was about to ring, or looked at a bell, has seen that it is gone */
	mutex_lock(&accel->ring_lock);
	mutex_unlock(&accel->ring_lock);
	spin_lock_irq(&accel->bell_lock);
	spin_unlock_irq(&accel->bell_lock);
	nupa_bars_unmap(accel);
	nupa_pci_disable(pdev);
	nupa_accel_put(accel);
}

/* Reboot and kexec: it must not write into memory that the next kernel gives away. */
static void nupa_shutdown(struct pci_dev *pdev)
{
	struct nupa_accel *accel = pci_get_drvdata(pdev);

	nupa_control_set(accel, 0);
	pci_clear_master(pdev);
}

static const struct pci_device_id nupa_ids[] = {
	{ PCI_DEVICE(NUPA_PCI_VENDOR, NUPA_PCI_DEVICE) },
	{}
};
MODULE_DEVICE_TABLE(pci, nupa_ids);

static struct pci_driver nupa_driver = {
	.name = NUPA_ACCEL_NAME,
	.id_table = nupa_ids,
	.probe = nupa_probe,
	.remove = nupa_remove,
	.shutdown = nupa_shutdown,
};

static int __init nupa_accel_init(void)
{
	int err = nupa_lease_init();

	if (err)
		return err;
	err = pci_register_driver(&nupa_driver);
	if (err)
		nupa_lease_exit();
	return err;
}

static void __exit nupa_accel_exit(void)
{
	pci_unregister_driver(&nupa_driver);
	nupa_lease_exit();
}

module_init(nupa_accel_init);
module_exit(nupa_accel_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Driver of an accelerator to test with, and of a pool's window: memory that leaves them as dma-bufs");
