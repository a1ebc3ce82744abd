/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that nupa_dev builds for (docs/kernels.md).
 * The version at each difference is the one that brought it.
 */
#ifndef NUPA_COMPAT_H
#define NUPA_COMPAT_H

#include <linux/version.h>
#include <net/page_pool/helpers.h>

#define NUPA_KERNEL_BEFORE(major, minor) (KERNEL_VERSION(major, minor, 0) > LINUX_VERSION_CODE)

/*
 * 6.15: a netdev with queue_mgmt_ops is configured under a lock of its own,
 * and what it calls meanwhile has other names.  Until that is done here, only
 * older kernels are offered device memory.
 */
#define NUPA_DEVICE_MEMORY NUPA_KERNEL_BEFORE(6, 13)

#if NUPA_DEVICE_MEMORY
static inline bool page_pool_is_unreadable(struct page_pool *pool)
{
	return pool->mp_ops;
}

/* Only while NAPI is disabled.  Its opposite is page_pool_disable_direct_recycling(). */
static inline void page_pool_enable_direct_recycling(struct page_pool *pool,
						     struct napi_struct *napi)
{
	WRITE_ONCE(pool->p.napi, napi);
}
#endif

#endif
