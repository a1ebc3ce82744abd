// SPDX-License-Identifier: GPL-2.0
/*
 * The dma-buf behind a program's mapping.  Pages of a device can't be pinned by
 * address, but whoever maps a dma-buf may name it so: ibv_reg_mr() of what mmap()
 * gave.
 *
 * The kernel tells no module which files are dma-bufs.  All of them have the same
 * operations, which one of ours shows.
 */
#include <linux/dma-buf.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include "memory/memory.h"

static const struct file_operations *tqp_dmabuf_fops;

static struct sg_table *tqp_shown_map(struct dma_buf_attachment *attach,
				      enum dma_data_direction dir)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void tqp_shown_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			    enum dma_data_direction dir)
{
}

static void tqp_shown_release(struct dma_buf *dmabuf)
{
}

static const struct dma_buf_ops tqp_shown_ops = {
	.map_dma_buf = tqp_shown_map,
	.unmap_dma_buf = tqp_shown_unmap,
	.release = tqp_shown_release,
};

/* Its end, which holds the module, comes when this task returns to user space: nothing may fail after this. */
void tqp_mr_mapped_init(void)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;

	info.ops = &tqp_shown_ops;
	info.size = PAGE_SIZE;
	info.priv = &tqp_dmabuf_fops;	/* it has to have one */
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf))
		return;		/* no mapping is known for one */
	tqp_dmabuf_fops = dmabuf->file->f_op;
	dma_buf_put(dmabuf);
}

/* mmap_lock */
static struct dma_buf *tqp_vma_dmabuf(const struct vm_area_struct *vma)
{
	struct file *file = vma->vm_file;

	return file && tqp_dmabuf_fops && file->f_op == tqp_dmabuf_fops ? file->private_data : NULL;
}

struct dma_buf *tqp_dmabuf_at(u64 start, u64 bytes, int access, u64 *offset)
{
	vm_flags_t needed = VM_SHARED | VM_READ | (ib_access_writable(access) ? VM_WRITE : 0);
	struct mm_struct *mm = current->mm;
	struct dma_buf *dmabuf = NULL;
	struct vm_area_struct *vma;

	if (mmap_read_lock_killable(mm))
		return ERR_PTR(-EINTR);
	vma = vma_lookup(mm, start);
	if (vma && (vma->vm_flags & needed) == needed && bytes <= vma->vm_end - start)
		dmabuf = tqp_vma_dmabuf(vma);
	if (dmabuf) {
		get_dma_buf(dmabuf);
		*offset = start - vma->vm_start + ((u64)vma->vm_pgoff << PAGE_SHIFT);
	}
	mmap_read_unlock(mm);
	return dmabuf ?: ERR_PTR(-EFAULT);
}
