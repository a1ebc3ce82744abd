// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/nupa_accelN: include/tcp_qp/nupa_accel.h, and what /dev/nupa_poolN shares with
 * it.  Everything from a program is copied once, then checked.
 */
#include <linux/eventfd.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "accel.h"

static struct nupa_accel *nupa_of(struct file *file)
{
	return file->private_data;
}

static int nupa_open(struct inode *inode, struct file *file)
{
	struct nupa_accel *accel = container_of(file->private_data, struct nupa_accel, misc);

	nupa_accel_get(accel);	/* misc_open() holds off misc_deregister() */
	file->private_data = accel;
	return 0;
}

static int nupa_ioctl_info(struct nupa_accel *accel, void __user *arg)
{
	struct nupa_accel_info info = {
		.id = accel->id,
		.memory_bytes = accel->memory_bytes,
		.free_bytes = READ_ONCE(accel->free_bytes),
		.commands = atomic64_read(&accel->commands),
		.cpu_mapped_bytes = atomic64_read(&accel->cpu_mapped_bytes),
		.kernel_maps = atomic64_read(&accel->kernel_maps),
		.buffers = READ_ONCE(accel->nr_buffers),
	};

	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static int nupa_ioctl_alloc(struct nupa_accel *accel, void __user *arg)
{
	struct nupa_accel_alloc alloc;

	if (copy_from_user(&alloc, arg, sizeof(alloc)))
		return -EFAULT;
	return alloc.reserved ? -EINVAL : nupa_file_alloc(accel, alloc.bytes, 0);
}

int nupa_file_alloc(struct nupa_accel *accel, u64 bytes, u64 token)
{
	int fd = get_unused_fd_flags(O_CLOEXEC);	/* first: what is taken can't be offered again */
	struct dma_buf *dmabuf;

	if (fd < 0)
		return fd;
	dmabuf = nupa_buffer_create(accel, bytes, token);
	if (IS_ERR(dmabuf)) {
		put_unused_fd(fd);
		return PTR_ERR(dmabuf);
	}
	fd_install(fd, dmabuf->file);
	return fd;
}

/* ---- commands ---- */

/* *@dmabuf has a reference, also when the place is wrong. */
static int nupa_place(struct nupa_accel *accel, const struct nupa_accel_place *place, u64 bytes,
		      struct dma_buf **dmabuf, __le64 *at)
{
	struct nupa_buffer *buffer;

	if (place->reserved)
		return -EINVAL;
	if (place->fd < 0)
		return place->fd == -1 && !place->offset ? 0 : -EINVAL;
	buffer = nupa_buffer_get(accel, place->fd);
	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	*dmabuf = buffer->dmabuf;
	if (place->offset > buffer->bytes || bytes > buffer->bytes - place->offset)
		return -ERANGE;
	*at = cpu_to_le64(buffer->at - accel->memory + place->offset);
	return 0;
}

/*
 * The device would take an address of zero for memory: what an operation needs
 * must be a buffer of the caller's.
 */
static bool nupa_call_has_places(const struct nupa_accel_call *call)
{
	bool to = call->to.fd >= 0, from = call->from.fd >= 0, other = call->other.fd >= 0;

	switch (call->op) {
	case NUPA_ACCEL_NOP:
	case NUPA_ACCEL_RING:
		return !to && !from && !other;
	case NUPA_ACCEL_COPY:
		return to && from && !other;
	case NUPA_ACCEL_FILL:
	case NUPA_ACCEL_PATTERN:
	case NUPA_ACCEL_WAIT:
		return to && !from && !other;
	case NUPA_ACCEL_COMPARE:
		return !to && from && other;
	case NUPA_ACCEL_SUM:
		return to && from && other;
	default:
		return false;
	}
}

static int nupa_call_add(struct nupa_accel *accel, struct nupa_batch *batch,
			 const struct nupa_accel_call *call)
{
	u64 bytes = call->op == NUPA_ACCEL_WAIT ? sizeof(u32) : call->bytes;
	struct dma_buf *dmabufs[3] = {};
	struct nupa_accel_cmd cmd = {
		.op = cpu_to_le16(call->op),
		.type = cpu_to_le16(call->type),
		.value = cpu_to_le32(call->value),
		.other = cpu_to_le64(call->start),
		.bytes = cpu_to_le64(call->bytes),
		.limit_ms = cpu_to_le32(call->limit_ms),
	};
	int err;

	if (!nupa_call_has_places(call) || (call->start && call->op != NUPA_ACCEL_PATTERN))
		return -EINVAL;
	err = nupa_place(accel, &call->to, bytes, &dmabufs[0], &cmd.to) ?:
	      nupa_place(accel, &call->from, bytes, &dmabufs[1], &cmd.from) ?:
	      nupa_place(accel, &call->other, bytes, &dmabufs[2], &cmd.other);
	if (!err)
		return nupa_batch_add(batch, &cmd, dmabufs);
	for (int i = 0; i < 3; i++)
		if (dmabufs[i])
			dma_buf_put(dmabufs[i]);
	return err;
}

static int nupa_results(const struct nupa_batch *batch, struct nupa_accel_call *calls,
			struct nupa_accel_call __user *to, u32 count)
{
	for (u32 i = 0; i < count; i++)
		nupa_batch_result(batch, i, &calls[i].status, &calls[i].result);
	return copy_to_user(to, calls, count * sizeof(*calls)) ? -EFAULT : 0;
}

static int nupa_ioctl_submit(struct nupa_accel *accel, void __user *arg)
{
	struct nupa_accel_call __user *from;
	struct nupa_accel_submit submit;
	struct nupa_accel_call *calls;
	struct nupa_batch *batch;
	int err = 0;

	if (copy_from_user(&submit, arg, sizeof(submit)))
		return -EFAULT;
	if (submit.reserved || !submit.count || submit.count > NUPA_ACCEL_BATCH_MAX)
		return -EINVAL;
	from = u64_to_user_ptr(submit.calls);
	calls = vmemdup_array_user(from, submit.count, sizeof(*calls));
	if (IS_ERR(calls))
		return PTR_ERR(calls);
	batch = nupa_batch_alloc(submit.count, GFP_KERNEL_ACCOUNT);
	if (!batch) {
		err = -ENOMEM;
		goto free;
	}
	for (u32 i = 0; !err && i < submit.count; i++)
		err = nupa_call_add(accel, batch, &calls[i]);
	if (!err)
		err = nupa_batch_submit(accel, batch);
	if (!err)
		err = nupa_results(batch, calls, from, submit.count);
	nupa_batch_put(batch);
free:
	kvfree(calls);
	return err;
}

static int nupa_ioctl_revoke(struct nupa_accel *accel, void __user *arg)
{
	struct nupa_accel_revoke revoke;
	struct nupa_buffer *buffer;
	int err;

	if (copy_from_user(&revoke, arg, sizeof(revoke)))
		return -EFAULT;
	if (revoke.reserved)
		return -EINVAL;
	buffer = nupa_buffer_get(accel, revoke.fd);
	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	err = nupa_buffer_take(buffer);
	dma_buf_put(buffer->dmabuf);
	return err;
}

/* ---- bells ---- */

/* bell_lock.  What rang before this is not told. */
static struct eventfd_ctx *nupa_bell_set(struct nupa_accel *accel, u32 bell,
					 struct eventfd_ctx *ctx, struct file *owner)
{
	struct eventfd_ctx *old = accel->bells[bell].ctx;

	accel->bells[bell].ctx = ctx;
	accel->bells[bell].owner = ctx ? owner : NULL;
	accel->bells[bell].seen = le32_to_cpu(READ_ONCE(accel->regs->bell[bell]));
	return old;
}

static int nupa_ioctl_bell(struct nupa_accel *accel, struct file *file, void __user *arg)
{
	struct eventfd_ctx *ctx = NULL, *unused;
	struct nupa_accel_bell bell;
	bool busy, gone;

	if (copy_from_user(&bell, arg, sizeof(bell)))
		return -EFAULT;
	if (bell.bell >= NUPA_ACCEL_BELLS || bell.eventfd < -1)
		return -EINVAL;
	if (bell.eventfd >= 0) {
		ctx = eventfd_ctx_fdget(bell.eventfd);
		if (IS_ERR(ctx))
			return PTR_ERR(ctx);
	}
	spin_lock_irq(&accel->bell_lock);
	busy = accel->bells[bell.bell].owner && accel->bells[bell.bell].owner != file;
	gone = READ_ONCE(accel->gone);
	unused = busy || gone ? ctx : nupa_bell_set(accel, bell.bell, ctx, file);
	spin_unlock_irq(&accel->bell_lock);
	if (unused)
		eventfd_ctx_put(unused);
	return gone ? -ENODEV : busy ? -EBUSY : 0;
}

static void nupa_bells_leave(struct nupa_accel *accel, struct file *file)
{
	struct eventfd_ctx *old;

	for (u32 i = 0; i < NUPA_ACCEL_BELLS; i++) {
		old = NULL;
		spin_lock_irq(&accel->bell_lock);
		if (accel->bells[i].owner == file) {
			old = accel->bells[i].ctx;
			accel->bells[i].ctx = NULL;
			accel->bells[i].owner = NULL;
		}
		spin_unlock_irq(&accel->bell_lock);
		if (old)
			eventfd_ctx_put(old);
	}
}

/* bell_lock.  Each ring is told, as far as the command ring can have held so many. */
static void nupa_bell_tell(struct eventfd_ctx *ctx, u32 rings)
{
	for (rings = min_t(u32, rings, NUPA_ACCEL_ENTRIES); rings; rings--)
		eventfd_signal(ctx);
}

void nupa_bells_rang(struct nupa_accel *accel)
{
	unsigned long flags;

	spin_lock_irqsave(&accel->bell_lock, flags);
	for (u32 i = 0; !accel->gone && i < NUPA_ACCEL_BELLS; i++) {
		/* the device stores it with release after what it stands for */
		u32 rung = le32_to_cpu(virt_load_acquire(&accel->regs->bell[i]));

		if (accel->bells[i].ctx)
			nupa_bell_tell(accel->bells[i].ctx, rung - accel->bells[i].seen);
		accel->bells[i].seen = rung;
	}
	spin_unlock_irqrestore(&accel->bell_lock, flags);
}

/* ---- the file ---- */

static long nupa_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct nupa_accel *accel = nupa_of(file);
	void __user *at = (void __user *)arg;

	if (READ_ONCE(accel->gone))
		return -ENODEV;
	if (accel->pool)
		return nupa_pool_ioctl(accel, cmd, at);
	switch (cmd) {
	case NUPA_ACCEL_IOC_INFO:
		return nupa_ioctl_info(accel, at);
	case NUPA_ACCEL_IOC_ALLOC:
		return nupa_ioctl_alloc(accel, at);
	case NUPA_ACCEL_IOC_SUBMIT:
		return nupa_ioctl_submit(accel, at);
	case NUPA_ACCEL_IOC_REVOKE:
		return nupa_ioctl_revoke(accel, at);
	case NUPA_ACCEL_IOC_BELL:
		return nupa_ioctl_bell(accel, file, at);
	default:
		return -ENOTTY;
	}
}

static int nupa_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct nupa_accel *accel = nupa_of(file);

	return accel->pool && !READ_ONCE(accel->gone) ? nupa_pool_mmap(accel, vma) : -ENODEV;
}

static int nupa_release(struct inode *inode, struct file *file)
{
	struct nupa_accel *accel = nupa_of(file);

	nupa_bells_leave(accel, file);
	nupa_accel_put(accel);
	return 0;
}

static const struct file_operations nupa_file_ops = {
	.owner = THIS_MODULE,
	.open = nupa_open,
	.release = nupa_release,
	.unlocked_ioctl = nupa_ioctl,
	.mmap = nupa_mmap,
};

int nupa_file_register(struct nupa_accel *accel)
{
	accel->misc = (struct miscdevice) {
		.minor = MISC_DYNAMIC_MINOR,
		.name = accel->name,
		.fops = &nupa_file_ops,
		.parent = &accel->pdev->dev,
		.mode = 0600,	/* a group by udev, if the administrator wishes */
	};
	return misc_register(&accel->misc);
}

void nupa_file_unregister(struct nupa_accel *accel)
{
	misc_deregister(&accel->misc);
}
