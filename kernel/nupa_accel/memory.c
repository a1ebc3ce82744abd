// SPDX-License-Identifier: GPL-2.0
/*
 * The accelerator's memory.  It has struct pages where the kernel can give it
 * some (ZONE_DEVICE): TCP knows what it sends by pages.  They are never given
 * to the page allocator, and no CPU reads them unless somebody maps a buffer,
 * which is counted.  A NIC's driver maps them for DMA as any page, which comes
 * to their bus address.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include "accel.h"

static int nupa_memory_add_pages(struct nupa_accel *accel)
{
	void *at;

	if (!IS_ENABLED(CONFIG_ZONE_DEVICE))
		return 0;
	accel->pgmap.type = MEMORY_DEVICE_GENERIC;
	accel->pgmap.nr_range = 1;
	accel->pgmap.range.start = accel->memory;
	accel->pgmap.range.end = accel->memory + accel->memory_bytes - 1;
	at = devm_memremap_pages(&accel->pdev->dev, &accel->pgmap);
	if (IS_ERR(at))
		return PTR_ERR(at);
	accel->paged = true;
	return 0;
}

int nupa_memory_init(struct nupa_accel *accel)
{
	int err;

	mutex_init(&accel->pages_lock);
	if (accel->pool)
		return nupa_memory_add_pages(accel);
	accel->free_bytes = accel->memory_bytes;
	accel->used_pages = kvcalloc(BITS_TO_LONGS(accel->memory_bytes >> PAGE_SHIFT),
				     sizeof(long), GFP_KERNEL);
	if (!accel->used_pages)
		return -ENOMEM;
	err = nupa_memory_add_pages(accel);
	if (err)
		kvfree(accel->used_pages);
	return err;
}

void nupa_memory_exit(struct nupa_accel *accel)
{
	if (accel->paged)
		devm_memunmap_pages(&accel->pdev->dev, &accel->pgmap);
	accel->paged = false;
}

/* ---- ranges that importers of taken buffers may still reach ---- */

/* Of all accelerators, also of those that are gone: another one may lie where they lay. */
static DEFINE_MUTEX(nupa_kept_lock);
static LIST_HEAD(nupa_kept_ranges);

void nupa_range_keep(struct nupa_buffer *buffer)
{
	mutex_lock(&nupa_kept_lock);
	if (list_empty(&buffer->kept))
		list_add(&buffer->kept, &nupa_kept_ranges);
	mutex_unlock(&nupa_kept_lock);
}

void nupa_range_let_go(struct nupa_buffer *buffer)
{
	mutex_lock(&nupa_kept_lock);
	list_del_init(&buffer->kept);
	mutex_unlock(&nupa_kept_lock);
}

phys_addr_t nupa_range_kept(phys_addr_t at, size_t bytes)
{
	struct nupa_buffer *buffer;
	phys_addr_t end = 0;

	mutex_lock(&nupa_kept_lock);
	list_for_each_entry(buffer, &nupa_kept_ranges, kept) {
		if (buffer->at < at + bytes && at < buffer->at + buffer->bytes) {
			end = buffer->at + buffer->bytes;
			break;
		}
	}
	mutex_unlock(&nupa_kept_lock);
	return end;
}

/* ---- ranges ---- */

/* First fit.  Large ranges begin where a large page does: their tables are short. */
static unsigned long nupa_memory_find(struct nupa_accel *accel, size_t bytes)
{
	unsigned long align = (bytes >= SZ_2M ? SZ_2M : PAGE_SIZE) >> PAGE_SHIFT;
	unsigned long pages = accel->memory_bytes >> PAGE_SHIFT, count = bytes >> PAGE_SHIFT;
	unsigned long first = 0;
	phys_addr_t kept;

	lockdep_assert_held(&accel->pages_lock);
	for (;;) {
		first = bitmap_find_next_zero_area(accel->used_pages, pages, first, count,
						   align - 1);
		kept = first < pages ? nupa_range_kept(accel->memory + PFN_PHYS(first), bytes) : 0;
		if (!kept)
			return first;
		first = PHYS_PFN(kept - accel->memory);
	}
}

phys_addr_t nupa_memory_alloc(struct nupa_accel *accel, size_t bytes)
{
	unsigned long pages = accel->memory_bytes >> PAGE_SHIFT, count = bytes >> PAGE_SHIFT, first;

	mutex_lock(&accel->pages_lock);
	first = nupa_memory_find(accel, bytes);
	if (first < pages) {
		bitmap_set(accel->used_pages, first, count);
		accel->free_bytes -= bytes;
	}
	mutex_unlock(&accel->pages_lock);
	return first < pages ? accel->memory + PFN_PHYS(first) : 0;
}

void nupa_memory_free(struct nupa_accel *accel, phys_addr_t at, size_t bytes)
{
	mutex_lock(&accel->pages_lock);
	bitmap_clear(accel->used_pages, PHYS_PFN(at - accel->memory), bytes >> PAGE_SHIFT);
	accel->free_bytes += bytes;
	mutex_unlock(&accel->pages_lock);
}

/* ---- to NIC drivers ---- */

static void nupa_hbm_release(struct device *dev)
{
	kfree(to_nupa_hbm(to_auxiliary_dev(dev)));
}

int nupa_memory_offer(struct nupa_accel *accel)
{
	struct nupa_hbm *hbm = kzalloc(sizeof(*hbm), GFP_KERNEL);
	int err;

	if (!hbm)
		return -ENOMEM;
	*hbm = (struct nupa_hbm) {
		.adev.name = NUPA_HBM_ADEV_NAME,
		.adev.id = accel->number + (accel->pool ? NUPA_POOL_HBM_ID : 0),
		.adev.dev.parent = &accel->pdev->dev,
		.adev.dev.release = nupa_hbm_release,
		.id = accel->id,
		.base = pci_bus_address(accel->pdev, 2) + NUPA_ACCEL_CONTROL_BYTES,
		.bytes = accel->memory_bytes,
	};
	err = auxiliary_device_init(&hbm->adev);
	if (err) {
		kfree(hbm);
		return err;
	}
	err = __auxiliary_device_add(&hbm->adev, NUPA_HBM_ADEV_MODULE);
	if (err) {
		auxiliary_device_uninit(&hbm->adev);
		return err;
	}
	accel->hbm = hbm;
	return 0;
}

void nupa_memory_withdraw(struct nupa_accel *accel)
{
	auxiliary_device_delete(&accel->hbm->adev);
	auxiliary_device_uninit(&accel->hbm->adev);
}
