/* SPDX-License-Identifier: BSD-3-Clause */
#include <tcp_qp/tcp_bth_option.h>
#include "abi_layout.h"

const struct abi_entry abi_c_entries[] = { ABI_SIZES(ABI_SIZE_ENTRY) ABI_OFFSETS(ABI_OFFSET_ENTRY) };
const size_t abi_c_count = sizeof(abi_c_entries) / sizeof(abi_c_entries[0]);

enum tcp_bth_error abi_c_round_trip(const struct tcp_bth *in, __u32 seq, __u32 payload, struct tcp_bth *out)
{
	__u8 option[TCP_BTH_OPT_MAX_BYTES];

	return tcp_bth_parse(option, tcp_bth_build(option, in), seq, payload, out);
}
