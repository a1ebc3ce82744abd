// SPDX-License-Identifier: BSD-3-Clause
// What is wrong with a received message, in words that tell kinds of fault apart.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace nupa::programs {

// Empty if @buffer holds @expected bytes of fill()'s for @key and the completion said so.
// Otherwise both lengths, the first wrong offset with both bytes, the last wrong offset, how many
// bytes are wrong, and whether the same buffer is right 200 ms later.
// @seen: bytes, as the completion said
std::string mismatch(std::span<const uint8_t> buffer, uint32_t seen, uint32_t expected,
                     uint64_t key);

}  // namespace nupa::programs
