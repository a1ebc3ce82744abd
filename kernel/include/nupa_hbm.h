/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The contract between a device with memory of its own (nupa_accel) and the
 * driver of a NIC whose hardware reaches it, too (nupa_dev): an auxiliary
 * device for each such memory, and the NIC's driver is its driver.  Neither
 * module needs the other to load.
 *
 * auxiliary_device_delete() returns only after the NIC's hardware has forgotten
 * the addresses, so the memory may then go.
 */
#ifndef NUPA_HBM_H
#define NUPA_HBM_H

#include <linux/auxiliary_bus.h>
#include <linux/types.h>

#define NUPA_HBM_ADEV_MODULE "nupa_hbm"
#define NUPA_HBM_ADEV_NAME "memory"

/* Constant from auxiliary_device_add() on. */
struct nupa_hbm {
	struct auxiliary_device adev;
	u64 id;		/* whose memory: the hardware knows it by this, or refuses it */
	u64 base;	/* bus address of its first byte */
	u64 bytes;
};

static inline struct nupa_hbm *to_nupa_hbm(struct auxiliary_device *adev)
{
	return container_of(adev, struct nupa_hbm, adev);
}

#endif
