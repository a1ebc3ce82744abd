/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * /dev/nupa_accelN: an accelerator to test with, to programs.
 *
 * Its memory leaves it as dma-bufs.  A buffer lives until its descriptor, what
 * was mapped of it, whoever imported it (a memory region, a socket's receive
 * queue) and commands under way are gone; then its range is free again.  No
 * descriptor of the device has to stay open for it.
 */
#ifndef TCP_QP_NUPA_ACCEL_H
#define TCP_QP_NUPA_ACCEL_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include <tcp_qp/nupa_accel_hw.h>

enum {
	NUPA_ACCEL_BATCH_MAX = 256,	/* commands of one call */
	NUPA_ACCEL_BUFFERS_MAX = 65536,	/* of one accelerator */
};

struct nupa_accel_info {
	__u64 id;		/* as the switch knows it */
	__u64 memory_bytes;
	__u64 free_bytes;
	__u64 commands;		/* executed, by anybody */
	/* What a CPU could reach, ever: while all of it is 0, no byte of the memory was in its hands. */
	__u64 cpu_mapped_bytes;	/* pages that programs touched through mmap() */
	__u64 kernel_maps;	/* buffers mapped for the kernel itself: whoever did counts what it copies */
	__u64 buffers;		/* that live now */
};

/*
 * A new buffer of @bytes, rounded up to pages, all zero (the device's doing):
 * returns a descriptor of its dma-buf, close-on-exec.  ENOSPC, EMFILE.  What lay
 * there before the accelerator was removed, and devmem TCP has bound since, is
 * counted as free, and given to nobody.
 */
struct nupa_accel_alloc {
	__u64 bytes;
	__u64 reserved;
};

/* A place in a buffer; @fd -1: the operation has none. */
struct nupa_accel_place {
	__s32 fd;
	__u32 reserved;
	__u64 offset;
};

struct nupa_accel_call {
	__u16 op;		/* enum nupa_accel_op */
	__u16 type;		/* enum nupa_accel_type */
	__u32 value;
	struct nupa_accel_place to, from, other;
	__u64 start;		/* PATTERN */
	__u64 bytes;
	__u32 limit_ms;
	__u32 status;		/* out: enum nupa_accel_status */
	__u64 result;		/* out */
};

/*
 * Executes commands in their order, between those of other programs, and sleeps
 * until the last is done.  0, if status says of each how it went; else none was
 * executed, but with EINTR (a fatal signal) and ENODEV (the device is gone), where
 * some may have been, and EFAULT for calls that can't be written, where all were.
 */
struct nupa_accel_submit {
	__u64 calls;		/* struct nupa_accel_call[count] */
	__u32 count;		/* 1 .. NUPA_ACCEL_BATCH_MAX */
	__u32 reserved;
};

/*
 * Takes a buffer's memory back from everybody who has it: mappings fault,
 * regions are invalid, and nothing of it is in flight when it returns.  The
 * descriptor stays, and can be closed only.
 */
struct nupa_accel_revoke {
	__s32 fd;
	__u32 reserved;
};

/*
 * An eventfd that bell @bell signals, once for each RING; -1: none any more.
 * Bells belong to the open file that first took them: EBUSY for others, until that one gives
 * it back by -1 or is closed.
 */
struct nupa_accel_bell {
	__s32 eventfd;
	__u32 bell;		/* below NUPA_ACCEL_BELLS */
};

#define NUPA_ACCEL_IOC_INFO	_IOR('n', 0xa0, struct nupa_accel_info)
#define NUPA_ACCEL_IOC_ALLOC	_IOW('n', 0xa1, struct nupa_accel_alloc)
#define NUPA_ACCEL_IOC_SUBMIT	_IOW('n', 0xa2, struct nupa_accel_submit)
#define NUPA_ACCEL_IOC_REVOKE	_IOW('n', 0xa3, struct nupa_accel_revoke)
#define NUPA_ACCEL_IOC_BELL	_IOW('n', 0xa4, struct nupa_accel_bell)

NUPA_STATIC_ASSERT(sizeof(struct nupa_accel_call) == 88, "nupa_accel_call");

#endif
