// SPDX-License-Identifier: GPL-2.0
/* /dev/nupa_poolN: include/tcp_qp/nupa_pool.h.  Everything from a program is copied once, then checked. */
#include <linux/fs.h>
#include <linux/uaccess.h>
#include "accel.h"

static int nupa_pool_ioctl_info(struct nupa_accel *accel, void __user *arg)
{
	struct nupa_pool_info info = {
		.id = accel->id,
		.window_bytes = accel->memory_bytes,
		.leased_bytes = atomic64_read(&accel->leased_bytes),
		.leases = READ_ONCE(accel->nr_buffers),
		.cpu_mapped_bytes = atomic64_read(&accel->cpu_mapped_bytes),
		.kernel_maps = atomic64_read(&accel->kernel_maps),
		.pool = accel->pool_id,
	};

	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static int nupa_pool_ioctl_alloc(struct nupa_accel *accel, void __user *arg)
{
	struct nupa_pool_alloc alloc;

	if (copy_from_user(&alloc, arg, sizeof(alloc)))
		return -EFAULT;
	return alloc.reserved ? -EINVAL : nupa_file_alloc(accel, alloc.bytes, 0);
}

static int nupa_pool_ioctl_offer(struct nupa_accel *accel, void __user *arg)
{
	struct nupa_pool_offer offer;
	struct nupa_buffer *buffer;
	int err;

	if (copy_from_user(&offer, arg, sizeof(offer)))
		return -EFAULT;
	if (offer.reserved || offer.token)
		return -EINVAL;
	buffer = nupa_buffer_get(accel, offer.fd);
	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	err = nupa_buffer_offer(buffer, &offer.token);
	dma_buf_put(buffer->dmabuf);
	if (err)
		return err;
	return copy_to_user(arg, &offer, sizeof(offer)) ? -EFAULT : 0;
}

static int nupa_pool_ioctl_take(struct nupa_accel *accel, void __user *arg)
{
	struct nupa_pool_take take;

	if (copy_from_user(&take, arg, sizeof(take)))
		return -EFAULT;
	if (!take.token || take.bytes % PAGE_SIZE)
		return -EINVAL;
	return nupa_file_alloc(accel, take.bytes, take.token);
}

long nupa_pool_ioctl(struct nupa_accel *accel, unsigned int cmd, void __user *arg)
{
	switch (cmd) {
	case NUPA_POOL_IOC_INFO:
		return nupa_pool_ioctl_info(accel, arg);
	case NUPA_POOL_IOC_ALLOC:
		return nupa_pool_ioctl_alloc(accel, arg);
	case NUPA_POOL_IOC_OFFER:
		return nupa_pool_ioctl_offer(accel, arg);
	case NUPA_POOL_IOC_TAKE:
		return nupa_pool_ioctl_take(accel, arg);
	default:
		return -ENOTTY;
	}
}

/* A lease of the mapping's own: it has the only reference, and shows which dma-buf it is of. */
int nupa_pool_mmap(struct nupa_accel *accel, struct vm_area_struct *vma)
{
	struct dma_buf *dmabuf;
	int err;

	if (vma->vm_pgoff || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	dmabuf = nupa_buffer_create(accel, vma->vm_end - vma->vm_start, 0);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	err = dma_buf_mmap(dmabuf, vma, 0);
	dma_buf_put(dmabuf);
	return err;
}
