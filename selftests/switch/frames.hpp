// SPDX-License-Identifier: BSD-3-Clause
// Frames for tests: built and read by hand, independent of the switch's own code.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "fake_port.hpp"
#include "tcp_qp/tcp_bth.h"

namespace nupa::testing {

using Mac = std::array<uint8_t, 6>;
inline constexpr Mac kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
inline constexpr uint16_t kTestType = 0x88b5;  // IEEE 802 local experimental

enum : uint8_t {
    kFin = 1,
    kSyn = 2,
    kRst = 4,
    kPsh = 8,
    kAck = 16,
    kUrg = 32,
    kEce = 64,
    kCwr = 128
};

struct TcpFrame {
    Mac dst{};
    Mac src{};
    bool v6 = false;
    uint32_t saddr = 0x0a000001;  // IPv6: fd00:: with these as the last four bytes
    uint32_t daddr = 0x0a000002;
    uint8_t ecn = 0;
    uint16_t sport = 1000;
    uint16_t dport = 2000;
    uint32_t seq = 1;
    uint32_t ack = 1;
    uint8_t flags = kAck;
    uint16_t window = 65535;
    Bytes options;  // a multiple of 4
    Bytes payload;
};

inline constexpr size_t kEthernetBytes = 14;

// The whole frame.  @checksum false leaves the TCP checksum as a host leaves it to the
// device: the folded pseudo header sum.
Bytes build_tcp(const TcpFrame& f, bool checksum = true);
size_t header_bytes(const TcpFrame& f);  // Ethernet + IP + TCP
// How to hand @f to the switch: checksum offload, and segmentation when @mss is given.
TxOptions offload(const TcpFrame& f, uint16_t mss = 0);

// What a receiver sees.  Empty when it is not a TCP frame.
std::optional<TcpFrame> parse_tcp(const Bytes& frame);
// IP header checksum (IPv4) and TCP checksum, over the whole frame.
bool checksums_right(const Bytes& frame);

Bytes build_udp(const Mac& dst, const Mac& src, const Bytes& payload);
Bytes build_ethernet(const Mac& dst, const Mac& src, uint16_t type, const Bytes& payload);
// Repeatable bytes, different for different @seed.
Bytes pattern(size_t bytes, uint32_t seed);
Bytes bth_option(const tcp_bth& bth);
std::optional<tcp_bth> find_bth(const TcpFrame& f);

}  // namespace nupa::testing
