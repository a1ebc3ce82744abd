// SPDX-License-Identifier: BSD-3-Clause
// The first message on a relayed queue pair.  Bytes of a queue pair are the same bytes on the TCP
// stream, so an end that gave up waiting while the other just succeeded would take messages for the
// stream of a plain peer.  It sees this first, and resets the connection: an error, not wrong
// bytes.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

namespace tcpqp::run {

constexpr std::array<uint8_t, 32> kHello{
    0xfe, 't',  'c',  'p',  'q',  'p',  '-',  'r',  'u',  'n',  0x1a, 0x01, 0x00, 0x0d, 0x0a, 0xc6,
    0x5b, 0x91, 0x3e, 0xd7, 0x08, 0xf2, 0xa4, 0x6c, 0x19, 0xe3, 0x7d, 0xb5, 0x50, 0x2f, 0x88, 0xff};
constexpr uint32_t kHelloImm = 0x72756e01;

inline bool is_hello(std::span<const std::byte> bytes) noexcept {
    return bytes.size() == kHello.size() &&
           std::memcmp(bytes.data(), kHello.data(), kHello.size()) == 0;
}

}  // namespace tcpqp::run
