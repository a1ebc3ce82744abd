// SPDX-License-Identifier: BSD-3-Clause
// What the schedules did: a simulation that never met an event proves nothing about it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/reason.hpp"

namespace sim {

#define SIM_COUNTERS(X)                                                                            \
    X(events)                                                                                      \
    X(segments)                                                                                    \
    X(placed_bytes)                                                                                \
    X(copied_bytes)                                                                                \
    X(messages)                                                                                    \
    X(empty_messages)                                                                              \
    X(immediates)                                                                                  \
    X(plain_bytes) X(merged) X(lost) X(reordered) X(duplicated) X(late) X(late_on_completed)       \
        X(corrupted) X(truncated) X(bleached) X(replayed) X(mangled) X(forged) X(overruns)         \
            X(link_down) X(retransmits) X(timeouts) X(spurious) X(reneged) X(refused) X(collapsed) \
                X(replaced) X(zero_window) X(stalls) X(sequence_wraps) X(msn_wraps) X(overflows)   \
                    X(escaped) X(recreated) X(deregistered) X(short_receives) X(bad_keys)          \
                        X(hostile_writes) X(length_errors) X(protection_errors) X(protocol_errors) \
                            X(failed_connections)

#define SIM_COUNTER_ENUM(name) k_##name,
enum Counter : std::uint8_t { SIM_COUNTERS(SIM_COUNTER_ENUM) kCounters };
#undef SIM_COUNTER_ENUM

struct Coverage {
    std::array<std::uint64_t, kCounters> counts{};
    std::array<std::uint64_t, static_cast<std::size_t>(nupa::Reason::kCount)> reasons{};
    void add(Counter which, std::uint64_t n = 1) noexcept { counts[which] += n; }
};

const char* counter_name(std::size_t which) noexcept;

}  // namespace sim
