// SPDX-License-Identifier: BSD-3-Clause
// TCP frames for fuzzers: mostly right headers around chosen options and payload.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <tcp_qp/tcp_bth.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "input.hpp"

namespace fuzz {

inline constexpr unsigned kFlows = 4;  // even numbers IPv4, odd ones IPv6
using Mac = std::array<std::uint8_t, 6>;

// Flow @n as the receiver of its data segments sees it.
nupa_flow flow_of(unsigned n);

struct Frame {
    unsigned flow = 0;
    bool reverse = false;  // from the receiver to the sender
    Mac from{2, 0, 0, 0, 0, 1}, to{2, 0, 0, 0, 0, 2};
    std::uint32_t seq = 0, ack = 0;
    std::uint16_t window = 0;
    std::uint8_t flags = 0x10;
    std::uint8_t tos = 0;
    std::uint16_t fragment = 0;  // IPv4 field
    bool checksum = true;
    std::uint8_t options_bytes = 0;  // a multiple of 4
    std::array<std::uint8_t, 40> options{};
    std::vector<std::uint8_t> payload;

    void set_option(const tcp_bth& b, unsigned at = 0);  // NOPs before it
    std::vector<std::uint8_t> build() const;
    std::size_t header_bytes() const { return l4_at() + 20 + options_bytes; }
    std::size_t l4_at() const { return 14 + (flow % 2 ? 40 : 20); }
};

// @n bytes that differ by place and by @seed.
std::vector<std::uint8_t> pattern(std::size_t n, std::uint8_t seed);
// Any description of a message with offset @mbo of @start_seq; fields from @in.
tcp_bth describe(Input& in, std::uint32_t start_seq, std::uint32_t mbo, std::uint32_t length,
                 std::uint16_t msn);

}  // namespace fuzz
