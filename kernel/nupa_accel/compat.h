/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that nupa_accel builds for (docs/kernels.md).
 * "By 7.3" means that 7.3 has it; which kernel after 6.12 had it first has not
 * been looked up.
 */
#ifndef NUPA_ACCEL_COMPAT_H
#define NUPA_ACCEL_COMPAT_H

#include <linux/dma-buf.h>
#include <linux/version.h>

/* By 7.3: what importers are told has another name; they unmap, as before. */
#if KERNEL_VERSION(7, 0, 0) > LINUX_VERSION_CODE
#define dma_buf_invalidate_mappings dma_buf_move_notify
#endif

#endif
