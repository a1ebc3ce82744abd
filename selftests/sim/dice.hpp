// SPDX-License-Identifier: BSD-3-Clause
// The one source of chance of a schedule.
#pragma once

#include <cstdint>

#include "engine/faults.hpp"

namespace sim {

class Dice {
public:
    explicit Dice(std::uint64_t seed) noexcept : random_(seed) {}
    std::uint64_t bits() noexcept { return random_.next(); }
    // [0, bound); 0 when bound is 0
    std::uint32_t below(std::uint32_t bound) noexcept {
        return bound ? static_cast<std::uint32_t>(random_.below(bound)) : 0;
    }
    // Both ends included.
    std::uint32_t range(std::uint32_t low, std::uint32_t high) noexcept {
        return low + below(high - low + 1);
    }
    bool percent(std::uint32_t p) noexcept { return below(100) < p; }
    bool per_mille(std::uint32_t p) noexcept { return below(1000) < p; }

private:
    nupa::Random random_;
};

}  // namespace sim
