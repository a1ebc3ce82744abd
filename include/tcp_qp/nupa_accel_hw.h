/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * nupa_accel_hw: the ABI between an accelerator to test with (tools/nupa_accel)
 * and its driver.
 *
 * It is a stock QEMU ivshmem-doorbell PCI device (1af4:1110), as a port of the
 * switch is (nupa_hw.h); its BAR2 is larger than any port's, and begins with
 * another magic:
 *   BAR0  doorbell register at 12: write (NUPA_PEER_SWITCH << 16 | vector 0)
 *   BAR2  NUPA_ACCEL_CONTROL_BYTES of registers and rings, then its memory
 *   MSI-X vector 0: completions; vector 1: a RING command has set a bell
 * All shared fields are little endian.  Ring indices and event indices are as
 * in nupa_hw.h.
 */
#ifndef TCP_QP_NUPA_ACCEL_HW_H
#define TCP_QP_NUPA_ACCEL_HW_H

#include <tcp_qp/nupa_hw.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	NUPA_ACCEL_MAGIC = 0x4341554e,	/* "NUAC" */
	NUPA_ACCEL_ABI_MAJOR = 2,	/* must be equal */
	NUPA_ACCEL_ABI_MINOR = 0,	/* may grow */

	NUPA_ACCEL_VECTORS = 2,
	NUPA_ACCEL_CONTROL_BYTES = 2 << 20,	/* the memory behind it may have struct pages: 2 MiB each way */
	NUPA_ACCEL_BAR2_BYTES_MIN = 4 << 20,
	NUPA_ACCEL_RING_AT = 0x1000,	/* struct nupa_ring_ctl */
	NUPA_ACCEL_CMDS_AT = 0x10000,	/* struct nupa_accel_cmd[NUPA_ACCEL_ENTRIES] */
	NUPA_ACCEL_COMPS_AT = 0x20000,	/* struct nupa_accel_comp[NUPA_ACCEL_ENTRIES], same index as its command */
	NUPA_ACCEL_ENTRIES = 1024,
	NUPA_ACCEL_BELLS = 16,
	NUPA_ACCEL_WAIT_MAX_MS = 2000,
	NUPA_ACCEL_PERIOD_MAX = 256,
};
#define NUPA_ACCEL_BAR2_BYTES_MAX (1ULL << 36)

/*
 * BAR2 offset 0.  What the device says does not change but for reset_ack and
 * bell.
 */
struct nupa_accel_regs {
	__le32 magic;
	__le16 abi_major;
	__le16 abi_minor;
	__le64 id;		/* of this memory, random, not 0: names it to the switch (NUPA_ADMIN_WINDOW_SET) */
	__le64 memory_at;	/* in BAR2 */
	__le64 memory_bytes;
	__le32 reset_ack;	/* equals control_gen once it took effect */
	__le32 reserved32;
	__le32 bell[NUPA_ACCEL_BELLS];	/* how often RING was executed for it */
	__le64 pool;		/* of a window (nupa_pool_hw.h): which pool, random, the same in all its windows */
	__u8 reserved[16];
	/* written by the host */
	__le32 control;		/* NUPA_CONTROL_ENABLE: without it no command is executed; clearing it forgets all */
	__le32 control_gen;	/* host adds one with each change of control, then rings vector 0 */
	__u8 reserved_host[120];
};

/* Commands are executed one after the other, each whole before the next begins. */
enum nupa_accel_op {
	NUPA_ACCEL_NOP = 0,
	NUPA_ACCEL_COPY,	/* to = from; they may overlap */
	NUPA_ACCEL_FILL,	/* to = value, again and again: bytes is a multiple of four */
	NUPA_ACCEL_PATTERN,	/* to[i] = (other + i + 1) mod value, ncqp's: 1 .. value - 1, 0; value at most PERIOD_MAX */
	NUPA_ACCEL_COMPARE,	/* from with other; result: bytes equal before the first difference */
	NUPA_ACCEL_SUM,		/* to = from + other, elements of type; to may be one of them */
	NUPA_ACCEL_WAIT,	/* until the 32 bits at to are value: at most limit_ms */
	NUPA_ACCEL_RING,	/* bell value: its count grows, and vector 1 */
	NUPA_ACCEL_OP_COUNT,
};

enum nupa_accel_type {
	NUPA_ACCEL_F32 = 0,	/* IEEE 754 binary32 */
	NUPA_ACCEL_BF16,	/* its upper half; a sum is rounded to nearest even */
	NUPA_ACCEL_TYPE_COUNT,
};

enum nupa_accel_status {
	NUPA_ACCEL_OK = 0,
	NUPA_ACCEL_E_OPCODE,
	NUPA_ACCEL_E_INVALID,	/* a field is out of range or a reserved one not zero */
	NUPA_ACCEL_E_BOUNDS,	/* beyond the memory */
	NUPA_ACCEL_E_TIMEOUT,	/* WAIT: the flag was not set */
	NUPA_ACCEL_E_COUNT,
};

/* Fields that an operation does not name are zero.  Addresses count from memory_at. */
struct nupa_accel_cmd {
	__le16 op;		/* enum nupa_accel_op */
	__le16 type;		/* enum nupa_accel_type */
	__le32 value;
	__le64 to;		/* WAIT: a multiple of four */
	__le64 from;
	__le64 other;
	__le64 bytes;
	__le32 limit_ms;	/* 1 .. NUPA_ACCEL_WAIT_MAX_MS */
	__le32 tag;		/* comes back */
	__u8 reserved[16];
};

struct nupa_accel_comp {
	__le32 status;		/* enum nupa_accel_status */
	__le32 tag;
	__le64 result;		/* COMPARE */
};
NUPA_STATIC_ASSERT(sizeof(struct nupa_accel_regs) == 256, "nupa_accel_regs");
NUPA_STATIC_ASSERT(offsetof(struct nupa_accel_regs, control) == 128, "nupa_accel_regs.control");
NUPA_STATIC_ASSERT(sizeof(struct nupa_accel_cmd) == 64, "nupa_accel_cmd");
NUPA_STATIC_ASSERT(sizeof(struct nupa_accel_comp) == 16, "nupa_accel_comp");
NUPA_STATIC_ASSERT(NUPA_ACCEL_CMDS_AT + NUPA_ACCEL_ENTRIES * sizeof(struct nupa_accel_cmd) <=
		   NUPA_ACCEL_COMPS_AT, "nupa_accel_cmd[]");
NUPA_STATIC_ASSERT(NUPA_ACCEL_COMPS_AT + NUPA_ACCEL_ENTRIES * sizeof(struct nupa_accel_comp) <=
		   NUPA_ACCEL_CONTROL_BYTES, "nupa_accel_comp[]");

#ifdef __cplusplus
}
#endif
#endif
