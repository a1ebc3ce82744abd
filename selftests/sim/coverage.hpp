// SPDX-License-Identifier: BSD-3-Clause
// What the schedules did: a simulation that never met an event proves nothing about it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/reason.hpp"

namespace sim {

// clang-format off
// What happened to segments and to TCP, to messages, and what applications did.
#define SIM_TCP_COUNTERS(X) \
    X(events) X(segments) X(runs) X(merged) X(held) X(silences) X(lost) X(reordered) X(duplicated) X(late) X(late_on_completed) \
    X(corrupted) X(truncated) X(bleached) X(replayed) X(mangled) X(forged) X(forged_segments) X(overruns) X(link_down) \
    X(retransmits) X(timeouts) X(spurious) X(reneged) X(refused) X(collapsed) X(replaced) \
    X(zero_window) X(sequence_wraps) X(overflows) X(escaped) X(recreated)
#define SIM_MESSAGE_COUNTERS(X) \
    X(trains) X(train_segments_placed) X(write_train_segments_placed) X(mixed_trains) X(mixed_train_segments_placed) X(write_mixed_trains) X(write_mixed_train_segments_placed) X(placed_bytes) X(copied_bytes) X(plain_bytes) X(messages) X(empty_messages) X(immediates) \
    X(msn_wraps) X(stalls) X(writes) X(write_immediates) X(window_writes) X(overlapping_writes) \
    X(reads) X(atomics) X(invalidates) X(switch_completions) X(turns_taken) \
    X(quiet) X(quiet_in_vain) X(later) X(joined) X(woken) X(shared_completions) X(shared_trains) X(shared_by_others) X(shared_owned) X(switch_sends)
#define SIM_TROUBLE_COUNTERS(X) \
    X(deregistered) X(short_receives) X(bad_keys) X(hostile_writes) X(bad_requests) X(bad_responses) \
    X(writes_refused) X(revoked_targets) X(revoked_sources) X(revoked_sinks) X(revoked_windows) \
    X(revoked_responses) X(length_errors) X(protection_errors) X(access_errors) X(protocol_errors) \
    X(failed_connections)
#define SIM_POST_COUNTERS(X) X(streams) X(posts) X(posts_busy) X(posts_rescued) X(post_bytes)
#define SIM_COUNTERS(X) SIM_TCP_COUNTERS(X) SIM_MESSAGE_COUNTERS(X) SIM_TROUBLE_COUNTERS(X) SIM_POST_COUNTERS(X)
// clang-format on

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
