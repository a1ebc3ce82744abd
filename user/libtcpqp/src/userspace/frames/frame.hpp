// SPDX-License-Identifier: BSD-3-Clause
// The stream between two stock ends, version 1.  All numbers big endian.
//
//   byte  0   2  magic 0x5150
//         2   1  version, 1
//         3   1  type: 1 hello, 2 message
//         4   4  length of the payload that follows, bytes; hello: 0
//         8   4  msn: 0, 1, ... of the sender's messages; hello: 0
//        12   4  immediate data, if flag 1 is set; else 0
//        16   1  flags: bit 0 immediate data is valid; hello: bit 1 this end also speaks
//               tcp_bth, bit 2 and wants to; others 0
//        17   7  zero
//
// Each end sends one hello first, and messages only after the peer's hello.  If both
// speak tcp_bth and one wants to, or if the peer is a module's end, no further
// frame is sent: the rest are messages of tcp_bth (option/).
// Whatever is not so ends the connection.
#pragma once

#include <arpa/inet.h>
#include <endian.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tcpqp.h"

namespace tcpqp::stock {

constexpr size_t kFrameBytes = 24;
constexpr uint16_t kFrameMagic = 0x5150;
constexpr uint8_t kFrameVersion = 1;

enum class FrameType : uint8_t { kHello = 1, kMessage = 2 };

struct Frame {
    FrameType type = FrameType::kMessage;
    uint32_t length = 0;
    uint32_t msn = 0;
    uint32_t imm = 0;
    bool has_imm = false;
    bool can_option = false;
    bool wants_option = false;
};

using FrameBytes = std::array<std::byte, kFrameBytes>;

enum FrameFlags : uint8_t {
    kFrameFlagImm = 1,
    kFrameFlagCanOption = 2,
    kFrameFlagWantsOption = 4,
};

inline void encode(const Frame& frame, std::byte* out) noexcept {
    const auto flags = (frame.has_imm ? kFrameFlagImm : 0) |
                       (frame.can_option ? kFrameFlagCanOption : 0) |
                       (frame.wants_option ? kFrameFlagWantsOption : 0);
    const auto type = static_cast<uint32_t>(frame.type);
    const std::array<uint32_t, 4> words{
        htonl(uint32_t{kFrameMagic} << 16 | uint32_t{kFrameVersion} << 8 | type),
        htonl(frame.length), htonl(frame.msn), htonl(frame.imm)};
    const uint64_t rest = htobe64(static_cast<uint64_t>(flags) << 56);
    std::memcpy(out, words.data(), sizeof(words));
    std::memcpy(out + sizeof(words), &rest, sizeof(rest));
}
// TCPQP_REASON_NONE, BAD_FRAME or VERSION; length is within TCPQP_MESSAGE_MAX_BYTES.
[[nodiscard]] uint32_t decode(const std::byte* in, Frame& frame) noexcept;
// A message without immediate data, the one of @msn?  Few instructions: nearly all are.
// False says nothing: decode() does.
[[nodiscard]] inline bool is_plain_message(const std::byte* in, uint32_t msn,
                                           uint32_t& length) noexcept {
    constexpr uint32_t kBegins = uint32_t{kFrameMagic} << 16 | uint32_t{kFrameVersion} << 8 |
                                 static_cast<uint32_t>(FrameType::kMessage);
    uint32_t begins = 0, big = 0, number = 0, imm = 0;
    uint64_t rest = 0;
    std::memcpy(&begins, in, sizeof(begins));
    std::memcpy(&big, in + 4, sizeof(big));
    std::memcpy(&number, in + 8, sizeof(number));
    std::memcpy(&imm, in + 12, sizeof(imm));
    std::memcpy(&rest, in + 16, sizeof(rest));
    length = ntohl(big);
    return begins == htonl(kBegins) && number == htonl(msn) && (imm | rest) == 0 &&
           length <= TCPQP_MESSAGE_MAX_BYTES;
}
// Could @bytes, shorter than a frame, begin one of ours?
[[nodiscard]] bool may_begin(std::span<const std::byte> bytes) noexcept;

}  // namespace tcpqp::stock
