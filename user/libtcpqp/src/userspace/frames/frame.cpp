// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/frames/frame.hpp"

#include <arpa/inet.h>

#include <cstring>

namespace tcpqp::stock {
namespace {

enum : size_t {
    kVersionAt = 2,
    kTypeAt = 3,
    kLengthAt = 4,
    kMsnAt = 8,
    kImmAt = 12,
    kFlagsAt = 16,
    kZeroAt = 17
};

uint32_t get32(const std::byte* at) noexcept {
    uint32_t big = 0;
    std::memcpy(&big, at, sizeof(big));
    return ntohl(big);
}

// The seven bytes at kZeroAt.
bool is_zero(const std::byte* at) noexcept {
    uint32_t first = 0, last = 0;  // they share a byte
    std::memcpy(&first, at, sizeof(first));
    std::memcpy(&last, at + kFrameBytes - kZeroAt - sizeof(last), sizeof(last));
    return (first | last) == 0;
}

bool is_sane(const Frame& f) noexcept {
    if (!f.has_imm && f.imm != 0)
        return false;
    if (f.type == FrameType::kHello)
        return f.length == 0 && f.msn == 0 && !f.has_imm && (f.can_option || !f.wants_option);
    return f.type == FrameType::kMessage && f.length <= TCPQP_MESSAGE_MAX_BYTES && !f.can_option &&
           !f.wants_option;
}

}  // namespace

uint32_t decode(const std::byte* in, Frame& frame) noexcept {
    if (!may_begin({in, kVersionAt}))
        return TCPQP_REASON_BAD_FRAME;
    if (static_cast<uint8_t>(in[kVersionAt]) != kFrameVersion)
        return TCPQP_REASON_VERSION;
    const auto flags = static_cast<uint8_t>(in[kFlagsAt]);
    frame.type = static_cast<FrameType>(in[kTypeAt]);
    frame.length = get32(in + kLengthAt);
    frame.msn = get32(in + kMsnAt);
    frame.imm = get32(in + kImmAt);
    frame.has_imm = (flags & kFrameFlagImm) != 0;
    frame.can_option = (flags & kFrameFlagCanOption) != 0;
    frame.wants_option = (flags & kFrameFlagWantsOption) != 0;
    const bool zero = is_zero(in + kZeroAt);
    return zero && (flags & ~(kFrameFlagImm | kFrameFlagCanOption | kFrameFlagWantsOption)) == 0 &&
                   is_sane(frame)
               ? TCPQP_REASON_NONE
               : TCPQP_REASON_BAD_FRAME;
}

bool may_begin(std::span<const std::byte> bytes) noexcept {
    constexpr std::byte kFirst{kFrameMagic >> 8}, kSecond{kFrameMagic & 0xff};
    return (bytes.empty() || bytes[0] == kFirst) && (bytes.size() < 2 || bytes[1] == kSecond);
}

}  // namespace tcpqp::stock
