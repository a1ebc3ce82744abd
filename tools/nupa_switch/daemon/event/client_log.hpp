// SPDX-License-Identifier: BSD-3-Clause
// Lines of the log that a client causes, of one socket that clients come to: who comes and goes
// again and again, or breaks the ABI each time, does not fill the log.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "event/clock.hpp"

namespace nupa::daemon {

inline constexpr unsigned kClientLinesAtOnce = 16;
inline constexpr uint64_t kClientLinePeriodNs = 10'000'000'000;  // after those, one in each

class ClientLog {
public:
    // who: begins each line; clock: as CLOCK_MONOTONIC, in nanoseconds.
    explicit ClientLog(std::string who, uint64_t (*clock)() noexcept = monotonic_ns);

    // As log_line(); one that may not be said is left out, and the next one says how many were.
    template <class... Args>
    void line(fmt::format_string<Args...> format, Args&&... args) noexcept {
        write(format, fmt::make_format_args(args...));
    }

private:
    void write(fmt::string_view format, fmt::format_args args) noexcept;
    bool take_line() noexcept;

    std::string who_;
    uint64_t (*clock_)() noexcept;
    uint64_t lines_ = kClientLinesAtOnce;  // that may be said now
    uint64_t since_ns_;                    // what they were counted up to
    uint64_t left_out_ = 0;
};

}  // namespace nupa::daemon
