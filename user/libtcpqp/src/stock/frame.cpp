// SPDX-License-Identifier: BSD-3-Clause
#include "stock/frame.hpp"

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
constexpr uint8_t kFlagImm = 1, kFlagCanOption = 2, kFlagWantsOption = 4;

void put32(std::byte* at, uint32_t v) noexcept {
    const uint32_t big = htonl(v);
    std::memcpy(at, &big, sizeof(big));
}

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

void encode(const Frame& frame, std::byte* out) noexcept {
    std::memset(out, 0, kFrameBytes);
    out[0] = static_cast<std::byte>(kFrameMagic >> 8);
    out[1] = static_cast<std::byte>(kFrameMagic & 0xff);
    out[kVersionAt] = static_cast<std::byte>(kFrameVersion);
    out[kTypeAt] = static_cast<std::byte>(frame.type);
    put32(out + kLengthAt, frame.length);
    put32(out + kMsnAt, frame.msn);
    put32(out + kImmAt, frame.imm);
    out[kFlagsAt] = static_cast<std::byte>((frame.has_imm ? kFlagImm : 0) |
                                           (frame.can_option ? kFlagCanOption : 0) |
                                           (frame.wants_option ? kFlagWantsOption : 0));
}

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
    frame.has_imm = (flags & kFlagImm) != 0;
    frame.can_option = (flags & kFlagCanOption) != 0;
    frame.wants_option = (flags & kFlagWantsOption) != 0;
    const bool zero = is_zero(in + kZeroAt);
    return zero && (flags & ~(kFlagImm | kFlagCanOption | kFlagWantsOption)) == 0 && is_sane(frame)
               ? TCPQP_REASON_NONE
               : TCPQP_REASON_BAD_FRAME;
}

bool may_begin(std::span<const std::byte> bytes) noexcept {
    constexpr std::byte kFirst{kFrameMagic >> 8}, kSecond{kFrameMagic & 0xff};
    return (bytes.empty() || bytes[0] == kFirst) && (bytes.size() < 2 || bytes[1] == kSecond);
}

}  // namespace tcpqp::stock
