// SPDX-License-Identifier: BSD-3-Clause
// From a transmit descriptor chain to a packet.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <span>

#include "packet.hpp"

namespace nupa {

enum class TxError : std::uint8_t {
    kOk,
    kSize,      // shorter than Ethernet, or longer than the burst limit
    kFlags,     // unknown flags, or both TSO4 and TSO6
    kHeader,    // TSO: not TCP of that family, or header_bytes disagrees with the packet
    kMss,       // TSO: mss out of range or too many segments
    kCsum,      // checksum position outside the packet
    kTcpFlags,  // TSO with SYN, RST or URG
    kNoMemory,
};

// @ctx and @bufs are copies the caller took from the ring and translated; @bufs
// point into the sender's memory.  @out is reusable and complete on kOk; any
// other answer counts as NUPA_STAT_tx_drop_invalid.
TxError packet_from_tx(Packet& out, const nupa_tx_ctx& ctx, std::span<const Bytes> bufs) noexcept;

const char* tx_error_name(TxError error) noexcept;

}  // namespace nupa
