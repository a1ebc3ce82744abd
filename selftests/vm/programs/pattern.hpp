// SPDX-License-Identifier: BSD-3-Clause
// Bytes that both ends of a test can compute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

namespace nupa::programs {

constexpr uint64_t mix(uint64_t x) noexcept {  // splitmix64
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

inline void fill(std::span<uint8_t> to, uint64_t key) noexcept {
    for (size_t i = 0; i < to.size(); i += 8) {
        const uint64_t word = mix(key + i);
        std::memcpy(&to[i], &word, std::min<size_t>(8, to.size() - i));
    }
}

// Offset of the first byte that is not fill()'s, or the size.
inline size_t first_wrong(std::span<const uint8_t> in, uint64_t key) noexcept {
    for (size_t i = 0; i < in.size(); i += 8) {
        const uint64_t word = mix(key + i);
        const size_t n = std::min<size_t>(8, in.size() - i);
        if (std::memcmp(&in[i], &word, n) != 0)
            for (size_t j = 0; j < n; j++)
                if (in[i + j] != reinterpret_cast<const uint8_t*>(&word)[j])
                    return i + j;
    }
    return in.size();
}

}  // namespace nupa::programs
