// SPDX-License-Identifier: BSD-3-Clause
#include "coverage.hpp"

namespace sim {

const char* counter_name(std::size_t which) noexcept {
#define SIM_COUNTER_NAME(name) #name,
    static constexpr const char* kNames[] = {SIM_COUNTERS(SIM_COUNTER_NAME)};
#undef SIM_COUNTER_NAME
    return which < kCounters ? kNames[which] : "unknown";
}

}  // namespace sim
