// SPDX-License-Identifier: BSD-3-Clause
// What our hashes are made of: both halves of a product.
#pragma once

#include <cstdint>

namespace nupa {

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Of a number that a host has chosen; without the seed it can't choose those that collide.
inline std::uint32_t hash_number(std::uint32_t number, std::uint64_t seed) noexcept {
    return static_cast<std::uint32_t>(
        mix(number ^ seed ^ 0x9e3779b97f4a7c15, seed ^ 0xe7037ed1a0b428db));
}

}  // namespace nupa
