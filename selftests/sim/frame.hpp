// SPDX-License-Identifier: BSD-3-Clause
// The headers that a simulated TCP writes and reads.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/flow.hpp"
#include "engine/limits.hpp"

namespace sim {

// What a TCP end says in one segment or burst.
struct TcpFields {
    std::uint32_t seq = 0, ack = 0;
    std::uint16_t window = 0;  // scaled
    std::uint8_t flags = 0;
    std::uint8_t option_bytes = 0;
    std::array<std::uint8_t, 40> options{};
};

struct FrameHeader {
    std::array<std::uint8_t, nupa::kHeaderMaxBytes> bytes;
    std::uint16_t size = 0;
    std::uint16_t l4_at = 0;
};

// The flow of a connection as the end @to receives it.
nupa::FlowKey flow_of(int family, std::uint32_t connection, int to);

// Complete but for the TCP checksum, which the device fills.
FrameHeader build_frame(const nupa::FlowKey& flow, const TcpFields& tcp, std::uint32_t payload);

// The TCP fields of a frame that build_frame() made, merged or not.
TcpFields read_frame(std::span<const std::uint8_t> header, int family);

}  // namespace sim
