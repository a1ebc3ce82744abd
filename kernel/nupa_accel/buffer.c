// SPDX-License-Identifier: GPL-2.0
/*
 * A range of the accelerator's memory as a dma-buf.
 *
 * Importers get bus addresses and no pages.  taken is set under dma_resv, as
 * attachments are mapped and vmap'ed under it: after it nobody gets anything,
 * and invalidate_mappings has told those who had.  What a kernel user mapped for the
 * CPU he may have in flight: taking waits for that.
 */
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include "accel.h"
#include "compat.h"

MODULE_INFO(import_ns, "DMA_BUF");	/* as MODULE_IMPORT_NS(), which takes a string since 6.13 */

static int nupa_dmabuf_pin(struct dma_buf_attachment *attach)
{
	struct nupa_buffer *buffer = attach->dmabuf->priv;

	if (buffer->taken)
		return -ENODEV;
	buffer->pins++;
	return 0;
}

static void nupa_dmabuf_unpin(struct dma_buf_attachment *attach)
{
	struct nupa_buffer *buffer = attach->dmabuf->priv;

	/* it never moves, but for being taken */
	if (!--buffer->pins)
		nupa_range_let_go(buffer);
}

static void nupa_sg_unmap(struct device *dev, struct sg_table *sgt, unsigned int count,
			  enum dma_data_direction dir)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgt->sgl, sg, count, i)
		dma_unmap_resource(dev, sg_dma_address(sg), sg_dma_len(sg), dir,
				   DMA_ATTR_SKIP_CPU_SYNC);
}

/* Bus addresses alone: sg_page() of an entry is NULL. */
static int nupa_sg_map(struct device *dev, const struct nupa_buffer *buffer, struct sg_table *sgt,
		       enum dma_data_direction dir)
{
	size_t at = 0;
	struct scatterlist *sg;
	int i;

	for_each_sg(sgt->sgl, sg, sgt->orig_nents, i) {
		size_t bytes = min_t(size_t, buffer->bytes - at, NUPA_ACCEL_SG_BYTES);
		dma_addr_t addr = dma_map_resource(dev, buffer->at + at, bytes, dir,
						   DMA_ATTR_SKIP_CPU_SYNC);

		if (dma_mapping_error(dev, addr)) {
			nupa_sg_unmap(dev, sgt, i, dir);
			return -ENOMEM;
		}
		sg_set_page(sg, NULL, bytes, 0);
		sg_dma_address(sg) = addr;
		sg_dma_len(sg) = bytes;
		at += bytes;
	}
	return 0;
}

static struct sg_table *nupa_dmabuf_map(struct dma_buf_attachment *attach,
					enum dma_data_direction dir)
{
	struct nupa_buffer *buffer = attach->dmabuf->priv;
	struct sg_table *sgt;
	int err;

	if (buffer->taken)
		return ERR_PTR(-ENODEV);
	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	err = sg_alloc_table(sgt, DIV_ROUND_UP(buffer->bytes, NUPA_ACCEL_SG_BYTES), GFP_KERNEL);
	if (err)
		goto free;
	err = nupa_sg_map(attach->dev, buffer, sgt, dir);
	if (err)
		goto free_table;
	return sgt;
free_table:
	sg_free_table(sgt);
free:
	kfree(sgt);
	return ERR_PTR(err);
}

static void nupa_dmabuf_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			      enum dma_data_direction dir)
{
	nupa_sg_unmap(attach->dev, sgt, sgt->nents, dir);
	sg_free_table(sgt);
	kfree(sgt);
}

static int nupa_dmabuf_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct nupa_buffer *buffer = dmabuf->priv;

	if (buffer->taken)	/* the core warns: who maps is to pin first */
		return -ENODEV;
	atomic_inc(&buffer->maps);
	atomic_inc(&buffer->accel->maps);
	atomic64_inc(&buffer->accel->kernel_maps);
	iosys_map_set_vaddr(map, __va(buffer->at));
	return 0;
}

static void nupa_dmabuf_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct nupa_buffer *buffer = dmabuf->priv;

	atomic_dec(&buffer->maps);
	atomic_dec(&buffer->accel->maps);
	wake_up_all(&buffer->accel->unmapped);
}

/* ---- mmap ---- */

static vm_fault_t nupa_vm_fault(struct vm_fault *vmf)
{
	struct nupa_buffer *buffer = vmf->vma->vm_private_data;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	down_read(&buffer->fault_lock);
	if (!buffer->taken && vmf->pgoff < buffer->bytes >> PAGE_SHIFT) {
		ret = vmf_insert_pfn(vmf->vma, vmf->address, PHYS_PFN(buffer->at) + vmf->pgoff);
		atomic64_add(PAGE_SIZE, &buffer->accel->cpu_mapped_bytes);
	}
	up_read(&buffer->fault_lock);
	return ret;
}

static const struct vm_operations_struct nupa_vm_ops = {
	.fault = nupa_vm_fault,
};

static int nupa_dmabuf_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_ops = &nupa_vm_ops;
	vma->vm_private_data = dmabuf->priv;	/* the mapping has a reference to the dma-buf */
	return 0;
}

/* ---- lives ---- */

void nupa_buffer_gone(struct nupa_buffer *buffer)
{
	struct nupa_accel *accel = buffer->accel;

	kfree(buffer);
	nupa_accel_put(accel);
}

static void nupa_buffer_free(struct nupa_buffer *buffer)
{
	struct nupa_accel *accel = buffer->accel;

	if (accel->pool) {
		atomic64_sub(buffer->bytes, &accel->leased_bytes);
		nupa_lease_give(buffer);
		return;
	}
	nupa_memory_free(accel, buffer->at, buffer->bytes);
	nupa_buffer_gone(buffer);
}

static void nupa_dmabuf_release(struct dma_buf *dmabuf)
{
	struct nupa_buffer *buffer = dmabuf->priv;
	struct nupa_accel *accel = buffer->accel;

	mutex_lock(&accel->buffers_lock);
	list_del(&buffer->node);
	accel->nr_buffers--;
	mutex_unlock(&accel->buffers_lock);
	nupa_buffer_free(buffer);
}

#define NUPA_DMABUF_OPS \
	.pin = nupa_dmabuf_pin, \
	.unpin = nupa_dmabuf_unpin, \
	.map_dma_buf = nupa_dmabuf_map, \
	.unmap_dma_buf = nupa_dmabuf_unmap, \
	.mmap = nupa_dmabuf_mmap, \
	.release = nupa_dmabuf_release

static const struct dma_buf_ops nupa_dmabuf_ops = { NUPA_DMABUF_OPS };

/* of memory with struct pages */
static const struct dma_buf_ops nupa_dmabuf_paged_ops = {
	NUPA_DMABUF_OPS,
	.vmap = nupa_dmabuf_vmap,
	.vunmap = nupa_dmabuf_vunmap,
};

static int nupa_range_take(struct nupa_accel *accel, size_t bytes, u64 token, phys_addr_t *at)
{
	int err;

	if (!accel->pool) {
		*at = nupa_memory_alloc(accel, bytes);
		return *at ? 0 : -ENOSPC;
	}
	err = nupa_lease_take(accel, bytes, token, at);
	if (!err)
		atomic64_add(bytes, &accel->leased_bytes);
	return err;
}

static struct nupa_buffer *nupa_buffer_alloc(struct nupa_accel *accel, size_t bytes, u64 token)
{
	struct nupa_buffer *buffer = kzalloc(sizeof(*buffer), GFP_KERNEL_ACCOUNT);
	int err;

	if (!buffer)
		return ERR_PTR(-ENOMEM);
	err = nupa_range_take(accel, bytes, token, &buffer->at);
	if (err) {
		kfree(buffer);
		return ERR_PTR(err);
	}
	nupa_accel_get(accel);
	buffer->accel = accel;
	buffer->bytes = bytes;
	init_rwsem(&buffer->fault_lock);
	INIT_LIST_HEAD(&buffer->kept);
	return buffer;
}

static int nupa_buffer_list(struct nupa_buffer *buffer)
{
	struct nupa_accel *accel = buffer->accel;
	int err = 0;

	mutex_lock(&accel->buffers_lock);
	if (READ_ONCE(accel->gone))
		err = -ENODEV;
	else if (accel->nr_buffers == NUPA_ACCEL_BUFFERS_MAX)
		err = -EMFILE;
	if (!err) {
		list_add(&buffer->node, &accel->buffers);
		accel->nr_buffers++;
	}
	mutex_unlock(&accel->buffers_lock);
	return err;
}

static struct dma_buf *nupa_buffer_export(struct nupa_accel *accel, size_t bytes, u64 token)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct nupa_buffer *buffer;
	struct dma_buf *dmabuf;
	int err;

	buffer = nupa_buffer_alloc(accel, bytes, token);
	if (IS_ERR(buffer))
		return ERR_CAST(buffer);
	info.ops = accel->paged ? &nupa_dmabuf_paged_ops : &nupa_dmabuf_ops;
	info.size = bytes;
	info.flags = O_RDWR;
	info.priv = buffer;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		nupa_buffer_free(buffer);
		return dmabuf;
	}
	buffer->dmabuf = dmabuf;
	INIT_LIST_HEAD(&buffer->node);
	err = nupa_buffer_list(buffer);
	if (err) {
		mutex_lock(&accel->buffers_lock);
		accel->nr_buffers++;	/* as its release takes one */
		mutex_unlock(&accel->buffers_lock);
		dma_buf_put(dmabuf);
		return ERR_PTR(err);
	}
	return dmabuf;
}

/* What an earlier owner left there is nobody's to read.  Interrupted, it goes when the device has done it. */
static int nupa_buffer_clear(struct nupa_accel *accel, struct dma_buf *dmabuf)
{
	struct nupa_buffer *buffer = dmabuf->priv;
	struct nupa_accel_cmd cmd = {
		.op = cpu_to_le16(NUPA_ACCEL_FILL),
		.to = cpu_to_le64(buffer->at - accel->memory),
		.bytes = cpu_to_le64(buffer->bytes),
	};
	struct dma_buf *dmabufs[3] = { dmabuf };
	struct nupa_batch *batch = nupa_batch_alloc(1, GFP_KERNEL_ACCOUNT);
	u64 result;
	u32 status;
	int err;

	if (!batch)
		return -ENOMEM;
	get_dma_buf(dmabuf);
	err = nupa_batch_add(batch, &cmd, dmabufs) ?: nupa_batch_submit(accel, batch);
	if (!err) {
		nupa_batch_result(batch, 0, &status, &result);
		err = status == NUPA_ACCEL_OK ? 0 : -EIO;
	}
	nupa_batch_put(batch);
	return err;
}

struct dma_buf *nupa_buffer_create(struct nupa_accel *accel, u64 bytes, u64 token)
{
	struct dma_buf *dmabuf;
	int err;

	if (!bytes || bytes > accel->memory_bytes)
		return ERR_PTR(bytes ? -ENOSPC : -EINVAL);
	dmabuf = nupa_buffer_export(accel, PAGE_ALIGN(bytes), token);
	if (IS_ERR(dmabuf) || accel->pool)
		return dmabuf;		/* the pool's own leases are zero, or another's gift */
	err = nupa_buffer_clear(accel, dmabuf);
	if (err) {
		dma_buf_put(dmabuf);
		return ERR_PTR(err);
	}
	return dmabuf;
}

static bool nupa_buffer_taken(struct nupa_buffer *buffer)
{
	bool taken;

	down_read(&buffer->fault_lock);
	taken = buffer->taken;
	up_read(&buffer->fault_lock);
	return taken;
}

struct nupa_buffer *nupa_buffer_get(struct nupa_accel *accel, int fd)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	struct nupa_buffer *buffer;

	if (IS_ERR(dmabuf))
		return ERR_CAST(dmabuf);
	buffer = dmabuf->priv;
	if (dmabuf->ops->map_dma_buf != nupa_dmabuf_map || buffer->accel != accel) {
		dma_buf_put(dmabuf);
		return ERR_PTR(-EXDEV);
	}
	if (nupa_buffer_taken(buffer)) {
		dma_buf_put(dmabuf);
		return ERR_PTR(-ENODEV);
	}
	return buffer;
}

/* ---- handing it over ---- */

static void nupa_buffer_set_taken(struct nupa_buffer *buffer, bool taken)
{
	dma_resv_assert_held(buffer->dmabuf->resv);
	down_write(&buffer->fault_lock);
	buffer->taken = taken;
	up_write(&buffer->fault_lock);
}

/* Nobody has it any more, if nobody but programs had. */
static int nupa_buffer_leave(struct nupa_buffer *buffer)
{
	struct dma_buf *dmabuf = buffer->dmabuf;
	int err = 0;

	dma_resv_lock(dmabuf->resv, NULL);
	if (buffer->taken)
		err = -ENODEV;
	else if (!list_empty(&dmabuf->attachments) || atomic_read(&buffer->maps))
		err = -EBUSY;
	else
		nupa_buffer_set_taken(buffer, true);
	dma_resv_unlock(dmabuf->resv);
	if (!err)
		unmap_mapping_range(dmabuf->file->f_mapping, 0, 0, 1);
	return err;
}

/* The device did not take the offer; if it went meanwhile, all is taken for good. */
static void nupa_buffer_return(struct nupa_buffer *buffer)
{
	dma_resv_lock(buffer->dmabuf->resv, NULL);
	if (!READ_ONCE(buffer->accel->gone))
		nupa_buffer_set_taken(buffer, false);
	dma_resv_unlock(buffer->dmabuf->resv);
}

int nupa_buffer_offer(struct nupa_buffer *buffer, u64 *token)
{
	int err = nupa_buffer_leave(buffer);

	if (err)
		return err;
	err = nupa_lease_offer(buffer->accel, buffer->at, token);
	if (!err)
		buffer->token = *token;
	else if (err == -EBUSY)
		nupa_buffer_return(buffer);
	return err;
}

/* ---- taking it back ---- */

static void nupa_buffer_withdraw(struct nupa_buffer *buffer)
{
	struct dma_buf *dmabuf = buffer->dmabuf;

	dma_resv_lock(dmabuf->resv, NULL);
	nupa_buffer_set_taken(buffer, true);
	dma_buf_invalidate_mappings(dmabuf);
	if (buffer->pins)	/* a static importer was not told, and goes on with its bus addresses */
		nupa_range_keep(buffer);
	dma_resv_unlock(dmabuf->resv);
	unmap_mapping_range(dmabuf->file->f_mapping, 0, 0, 1);
}

int nupa_buffer_take(struct nupa_buffer *buffer)
{
	nupa_buffer_withdraw(buffer);
	return wait_event_killable(buffer->accel->unmapped, !atomic_read(&buffer->maps)) ? -EINTR :
											   0;
}

/*
 * A listed buffer whose last reference is gone waits in its release for
 * buffers_lock: its inode may be gone already, and nobody has it any more.
 */
static void nupa_buffer_withdraw_listed(struct nupa_buffer *buffer)
{
	lockdep_assert_held(&buffer->accel->buffers_lock);
	if (!get_file_active(&buffer->dmabuf->file))
		return;
	nupa_buffer_withdraw(buffer);
	dma_buf_put(buffer->dmabuf);	/* if the last: its release is deferred, and waits for the lock */
}

/* Removal: the struct pages go, so it waits for all who have them, however long. */
void nupa_buffers_take_all(struct nupa_accel *accel)
{
	struct nupa_buffer *buffer;

	mutex_lock(&accel->buffers_lock);
	list_for_each_entry(buffer, &accel->buffers, node)
		nupa_buffer_withdraw_listed(buffer);
	mutex_unlock(&accel->buffers_lock);
	while (!wait_event_timeout(accel->unmapped, !atomic_read(&accel->maps),
				   msecs_to_jiffies(NUPA_ACCEL_TAKE_WARN_MS)))
		dev_warn(&accel->pdev->dev, "%d buffers are still mapped for the kernel\n",
			 atomic_read(&accel->maps));
}
