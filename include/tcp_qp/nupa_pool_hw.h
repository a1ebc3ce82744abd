/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * nupa_pool_hw: the ABI between a host's window to the switch's pool of memory
 * (the switch's mode cxl, docs/cxl-mode.md) and its driver.
 *
 * The window is a stock QEMU ivshmem-doorbell PCI device (1af4:1110) laid out as
 * an accelerator is (nupa_accel_hw.h): the same registers with another magic, the
 * same ring, then the memory.  Its commands are those below and NOP.
 *
 * Each page of the pool is at the same offset in every window, and belongs to one
 * host at most.  A host that writes to a page that is not its own reaches nobody:
 * what it finds there is memory of its own window, which is gone when the page
 * becomes its own.
 *
 * A lease may change hands with what is in it: its host offers it and tells another
 * host the token, which takes it by that.  At each moment one of them has it, or nobody.
 */
#ifndef TCP_QP_NUPA_POOL_HW_H
#define TCP_QP_NUPA_POOL_HW_H

#include <tcp_qp/nupa_accel_hw.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	NUPA_POOL_MAGIC = 0x4c50554e,	/* "NUPL" in nupa_accel_regs.magic */
	NUPA_POOL_ABI_MAJOR = 1,	/* must be equal */
	NUPA_POOL_ABI_MINOR = 2,	/* may grow */

	NUPA_POOL_LEASES_MAX = 1024,	/* of one host */
	NUPA_POOL_PAGE_BYTES = 4096,
};

/* Of struct nupa_accel_cmd; fields that a command does not name are zero. */
enum nupa_pool_op {
	NUPA_POOL_NOP = NUPA_ACCEL_NOP,
	/*
	 * bytes, a multiple of NUPA_POOL_PAGE_BYTES; result: where they lie, in the
	 * window's memory.  They are the host's, and all zero.
	 */
	NUPA_POOL_LEASE = 0x40,
	/*
	 * to: a whole lease.  From its completion on it may be anybody's, all zero.
	 * NUPA_POOL_E_BUSY: a region of the host's port is in it.  One that is offered
	 * goes as well.  other: its token, or 0; with one, NUPA_POOL_E_NOENT unless it
	 * is still offered under it.  (Since 1.2.)
	 */
	NUPA_POOL_RELEASE,
	/*
	 * to: a whole lease; result: its token, random and not 0.  From its completion on
	 * it is nobody's to use, until it is taken or released; it counts to the share of
	 * its host until then.  NUPA_POOL_E_BUSY as above.  Since 1.2.
	 */
	NUPA_POOL_OFFER,
	/*
	 * other: the token of an offered lease of bytes, of any host of the pool; result:
	 * where it lies.  It is this host's, with what was in it; the token is void.
	 * NUPA_POOL_E_NOENT: there is none, or it is gone.  Since 1.2.
	 */
	NUPA_POOL_TAKE,
};

/* As enum nupa_accel_status, and: */
enum nupa_pool_status {
	NUPA_POOL_E_NOSPACE = NUPA_ACCEL_E_COUNT,	/* no range is free that long, or too many leases */
	NUPA_POOL_E_NOENT,				/* no lease of this host begins there, or none is offered so */
	NUPA_POOL_E_BUSY,
	NUPA_POOL_E_SHARE,				/* more than is left of the host's share of the pool; since 1.1 */
	NUPA_POOL_E_COUNT,
};

#ifdef __cplusplus
}
#endif
#endif
