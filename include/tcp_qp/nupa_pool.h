/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * /dev/nupa_poolN: memory of the switch's pool, to programs.
 *
 * A lease leaves the device as a dma-buf: mmap() it, register it as a memory
 * region, pass it on.  It lives until its descriptors, what was mapped of it and
 * whoever imported it are gone, also by kill -9; then the switch has it back.  No
 * descriptor of the device has to stay open for it.
 *
 * mmap() of the device, shared and from offset 0, is a lease of its own, without a
 * descriptor; errors as below.  What is mapped of a lease, either way, can be
 * registered by its address, too (ibv_reg_mr()), where tcp_qp has a port of the
 * switch.
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
	__u64 pool;		/* the same in all windows of one pool, and of no other */
};

/*
 * A lease of @bytes, rounded up to pages, all zero: returns a descriptor of its
 * dma-buf, close-on-exec.  ENOSPC: no range of the pool is free that long, or the
 * host has too many.  EDQUOT: more than is left of the host's share of the pool.
 * EBUSY: devmem TCP still reaches that range, bound to a lease of a window that was
 * removed.  EINTR: a fatal signal; the switch has it back.
 */
struct nupa_pool_alloc {
	__u64 bytes;
	__u64 reserved;
};

/*
 * Offers the lease @fd to whoever is told @token: programs lose what they mapped of it
 * (SIGBUS), and its descriptor is good for nothing but close(), which withdraws the
 * offer unless the lease was taken.  EBUSY: it is registered, or imported otherwise.
 * ENODEV: it was offered before, or the window has gone.  EXDEV: not a lease of this
 * window.  EINTR: a fatal signal.
 */
struct nupa_pool_offer {
	__s32 fd;
	__u32 reserved;
	__u64 token;		/* out; random, not 0 */
};

/*
 * Takes a lease of @bytes, whole pages, that another program offered, perhaps on another
 * host of the pool, with what is in it: returns a descriptor as nupa_pool_alloc does,
 * and fails alike.  ENOENT: no such lease is offered.
 */
struct nupa_pool_take {
	__u64 token;
	__u64 bytes;
};

#define NUPA_POOL_IOC_INFO	_IOR('n', 0xb0, struct nupa_pool_info)
#define NUPA_POOL_IOC_ALLOC	_IOW('n', 0xb1, struct nupa_pool_alloc)
#define NUPA_POOL_IOC_OFFER	_IOWR('n', 0xb2, struct nupa_pool_offer)
#define NUPA_POOL_IOC_TAKE	_IOW('n', 0xb3, struct nupa_pool_take)

#endif
