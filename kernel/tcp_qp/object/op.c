// SPDX-License-Identifier: GPL-2.0
/* What a send queue's opcodes ask for, on the wire and of the completion queue. */
#include "object/tqp.h"

const struct tqp_op tqp_ops[TQP_WR_OPCODES] = {
	[IB_WR_RDMA_WRITE] = {
		.known = true,
		.operands = true,
		.trains = true,
		.bth_opcode = TCP_BTH_OP_WRITE_ONLY,
		.wc_opcode = IB_WC_RDMA_WRITE,
	},
	[IB_WR_RDMA_WRITE_WITH_IMM] = {
		.known = true,
		.operands = true,
		.untagged = true,
		.bth_opcode = TCP_BTH_OP_WRITE_ONLY_IMM,
		.wc_opcode = IB_WC_RDMA_WRITE,
	},
	[IB_WR_SEND] = {
		.known = true,
		.untagged = true,
		.trains = true,
		.bth_opcode = TCP_BTH_OP_SEND_ONLY,
		.wc_opcode = IB_WC_SEND,
	},
	[IB_WR_SEND_WITH_IMM] = {
		.known = true,
		.operands = true,
		.untagged = true,
		.bth_opcode = TCP_BTH_OP_SEND_ONLY_IMM,
		.wc_opcode = IB_WC_SEND,
	},
	[IB_WR_SEND_WITH_INV] = {
		.known = true,
		.operands = true,
		.untagged = true,
		.invalidates = true,
		.bth_opcode = TCP_BTH_OP_SEND_ONLY_INV,
		.wc_opcode = IB_WC_SEND,
	},
	[IB_WR_LOCAL_INV] = {
		.known = true,
		.operands = true,
		.local = true,
		.invalidates = true,
		.wc_opcode = IB_WC_LOCAL_INV,
	},
	[IB_WR_BIND_MW] = {
		.known = true,
		.operands = true,
		.local = true,
		.wc_opcode = IB_WC_BIND_MW,
	},
	[IB_WR_RDMA_READ] = {
		.known = true,
		.operands = true,
		.request = true,
		.bth_opcode = TCP_BTH_OP_READ_REQUEST,
		.wc_opcode = IB_WC_RDMA_READ,
	},
	[IB_WR_ATOMIC_CMP_AND_SWP] = {
		.known = true,
		.operands = true,
		.request = true,
		.bth_opcode = TCP_BTH_OP_CMP_SWAP,
		.wc_opcode = IB_WC_COMP_SWAP,
	},
	[IB_WR_ATOMIC_FETCH_AND_ADD] = {
		.known = true,
		.operands = true,
		.request = true,
		.bth_opcode = TCP_BTH_OP_FETCH_ADD,
		.wc_opcode = IB_WC_FETCH_ADD,
	},
};

u32 tqp_wc_opcode(u32 wr_opcode)
{
	const struct tqp_op *op = tqp_op_of(wr_opcode);

	return op ? op->wc_opcode : IB_WC_SEND;
}
