// SPDX-License-Identifier: BSD-3-Clause
// Messages of which the honest side can tell that they are right, though all around them is fuzzed:
// numbered, and each the part of one pattern that its number says.
#pragma once

#include <array>
#include <cstdint>

#include "pattern.hpp"

namespace nupa::fuzz {

constexpr uint32_t kLoyalMaxBytes = 16 << 10;
constexpr uint32_t kPatternBytes = 64 << 10;
constexpr uint64_t kPatternKey = 0x10'7a1;

// Made by an honest process that was wronged: fuzzers on that machine end, and say what they did
// last.
constexpr const char* kWronged = "/tmp/user_fuzz.wronged";

// The first plain bytes on a connection whose messages are to be checked.
using Token = std::array<uint64_t, 2>;
constexpr Token kToken = {0x6c6f79616c206f6eull, 0x9390869e93df9091ull};
// The same of a connection that stays one of plain bytes: fill()'s, without end.
constexpr Token kStreamToken = {0x6c6f79616c207374ull, 0x7265616df0da7101ull};
constexpr uint64_t kStreamKey = 0x57'4ea3;
constexpr size_t kWordBytes = sizeof(uint64_t);  // of fill()
constexpr const char* kStreamUlp = "tcp_qp_stream";

// The same file under a number that no table of a fuzzer has, and no stale one means.
int own(int fd);

struct LoyalMessage {
    uint32_t offset, bytes;  // within the pattern
};

constexpr LoyalMessage loyal_message(uint32_t number) noexcept {
    const uint64_t r = programs::mix(number + 7);
    const auto bytes = static_cast<uint32_t>(1 + r % kLoyalMaxBytes);
    return {static_cast<uint32_t>((r >> 32) % (kPatternBytes - kLoyalMaxBytes)), bytes};
}

}  // namespace nupa::fuzz
