// SPDX-License-Identifier: GPL-2.0
/*
 * Test: dma-bufs that their exporter moves while they are pinned, and says so to all that are
 * attached, as amdgpu does with what lies in a GPU's memory.  Here it is where it was.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include "compat.h"

/* MODULE_IMPORT_NS(), which takes a string since 6.13, is this */
MODULE_INFO(import_ns, "DMA_BUF");

enum {
	MOVING_BYTES = 1 << 16,
};

#define MOVING_BUFFER_GET	_IO('u', 16)	/* a descriptor of a new one */

static int moving_pin(struct dma_buf_attachment *attach)
{
	dma_buf_invalidate_mappings(attach->dmabuf);
	return 0;
}

static void moving_unpin(struct dma_buf_attachment *attach)
{
}

static struct sg_table *moving_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct sg_table *sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	int err;

	if (!sgt)
		return ERR_PTR(-ENOMEM);
	err = sg_alloc_table(sgt, 1, GFP_KERNEL);
	if (err)
		goto free;
	sg_set_page(sgt->sgl, virt_to_page(attach->dmabuf->priv), MOVING_BYTES, 0);
	err = dma_map_sgtable(attach->dev, sgt, dir, 0);
	if (err)
		goto free_table;
	return sgt;
free_table:
	sg_free_table(sgt);
free:
	kfree(sgt);
	return ERR_PTR(err);
}

static void moving_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			 enum dma_data_direction dir)
{
	dma_unmap_sgtable(attach->dev, sgt, dir, 0);
	sg_free_table(sgt);
	kfree(sgt);
}

static int moving_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	iosys_map_set_vaddr(map, dmabuf->priv);
	return 0;
}

static void moving_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
}

static void moving_release(struct dma_buf *dmabuf)
{
	free_pages_exact(dmabuf->priv, MOVING_BYTES);
}

static const struct dma_buf_ops moving_ops = {
	.pin = moving_pin,
	.unpin = moving_unpin,
	.map_dma_buf = moving_map,
	.unmap_dma_buf = moving_unmap,
	.vmap = moving_vmap,
	.vunmap = moving_vunmap,
	.release = moving_release,
};

static long moving_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	int fd;

	if (cmd != MOVING_BUFFER_GET)
		return -ENOTTY;
	info.ops = &moving_ops;
	info.size = MOVING_BYTES;
	info.flags = O_RDWR;
	info.priv = alloc_pages_exact(MOVING_BYTES, GFP_KERNEL | __GFP_ZERO);
	if (!info.priv)
		return -ENOMEM;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		free_pages_exact(info.priv, MOVING_BYTES);
		return PTR_ERR(dmabuf);
	}
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	return fd;
}

static const struct file_operations moving_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = moving_ioctl,
};

static struct miscdevice moving_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "moving_buffer",
	.fops = &moving_fops,
};

module_misc_device(moving_misc);

MODULE_DESCRIPTION("Test: dma-bufs that move while they are pinned");
MODULE_LICENSE("GPL");
