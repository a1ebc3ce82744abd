// SPDX-License-Identifier: BSD-3-Clause
// Random numbers of which much is likely to matter to a kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pattern.hpp"

namespace nupa::fuzz {

class Dice {
public:
    explicit Dice(uint64_t seed) noexcept : state_(programs::mix(seed)) {}

    uint64_t next() noexcept { return programs::mix(state_++); }
    // Less than @bound, which is not 0.
    uint32_t below(size_t bound) noexcept { return static_cast<uint32_t>(next() % bound); }
    bool one_in(uint32_t n) noexcept { return below(n) == 0; }
    template <typename T, size_t N>
    const T& of(const T (&list)[N]) noexcept {
        return list[below(N)];
    }
    // Small, a border, a power of two, or anything.
    uint64_t wild() noexcept {
        static constexpr uint64_t kBorders[] = {
            0,          1,          4095,        4096,
            65535,      65536,      INT32_MAX,   UINT32_MAX,
            INT64_MAX,  UINT64_MAX, 0x80000000,  uint64_t{1} << 32,
            1ull << 47, 1ull << 63, 0xfffffffeu, 0xffff8880'00000000};
        switch (below(4)) {
            case 0:
                return below(64);
            case 1:
                return of(kBorders);
            case 2:
                return uint64_t{1} << below(64);
            default:
                return next();
        }
    }
    // The union of some of the @bits lowest bits: often few, seldom all.
    uint32_t flags(unsigned bits) noexcept {
        const uint32_t all = bits < 32 ? (1u << bits) - 1 : UINT32_MAX;
        return static_cast<uint32_t>(one_in(8) ? next() & all : next() & next() & next() & all);
    }

private:
    uint64_t state_;
};

}  // namespace nupa::fuzz
