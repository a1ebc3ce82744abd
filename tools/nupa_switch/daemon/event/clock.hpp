// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <ctime>

namespace nupa::daemon {

inline constexpr uint64_t kNsPerSecond = 1'000'000'000;
inline constexpr uint64_t kNsPerUs = 1000;

inline uint64_t read_clock_ns(clockid_t clock) noexcept {
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t monotonic_ns() noexcept { return read_clock_ns(CLOCK_MONOTONIC); }
inline uint64_t thread_time_ns() noexcept { return read_clock_ns(CLOCK_THREAD_CPUTIME_ID); }
inline uint64_t unix_time_ns() noexcept { return read_clock_ns(CLOCK_REALTIME); }

}  // namespace nupa::daemon
