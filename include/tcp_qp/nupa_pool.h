/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * /dev/nupa_poolN: memory of the switch's pool, to programs.
 *
 * A lease leaves the device as a dma-buf: mmap() it, register it as a memory
 * region, pass it on.  It lives until its descriptors, what was mapped of it and
 * whoever imported it are gone, also by kill -9; then the switch has it back.  No
 * descriptor of the device has to stay open for it.
 */
#ifndef TCP_QP_NUPA_POOL_H
#define TCP_QP_NUPA_POOL_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include <tcp_qp/nupa_pool_hw.h>

struct nupa_pool_info {
	__u64 id;		/* of this window, as the switch knows it */
	__u64 window_bytes;	/* of the window: the pool in it may be smaller */
	__u64 leased_bytes;	/* of this host, now */
	__u64 leases;
	__u64 cpu_mapped_bytes;	/* pages that programs touched through mmap(), ever */
	__u64 kernel_maps;	/* leases mapped for the kernel, ever: one for each region */
};

/*
 * A lease of @bytes, rounded up to pages, all zero: returns a descriptor of its
 * dma-buf, close-on-exec.  ENOSPC: no range of the pool is free that long, or the
 * host has too many.  EDQUOT: more than is left of the host's share of the pool.
 * EINTR: a fatal signal; the switch has it back.
 */
struct nupa_pool_alloc {
	__u64 bytes;
	__u64 reserved;
};

#define NUPA_POOL_IOC_INFO	_IOR('n', 0xb0, struct nupa_pool_info)
#define NUPA_POOL_IOC_ALLOC	_IOW('n', 0xb1, struct nupa_pool_alloc)

#endif
