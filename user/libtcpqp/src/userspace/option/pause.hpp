// SPDX-License-Identifier: BSD-3-Clause
// When to look again although no wakeup came.
#pragma once

#include <algorithm>
#include <chrono>

namespace tcpqp::stock {

class Pause {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr Clock::time_point kNever = Clock::time_point::max();

    // If it has not begun.
    void begin(std::chrono::milliseconds length) noexcept {
        if (at_ == kNever)
            restart(length);
    }
    void lengthen(std::chrono::milliseconds most) noexcept { restart(std::min(length_ * 2, most)); }
    void end() noexcept { at_ = kNever; }
    [[nodiscard]] bool over() const noexcept { return at_ != kNever && Clock::now() >= at_; }
    [[nodiscard]] Clock::time_point at() const noexcept { return at_; }

private:
    void restart(std::chrono::milliseconds length) noexcept {
        length_ = length;
        at_ = Clock::now() + length;
    }

    Clock::time_point at_ = kNever;
    std::chrono::milliseconds length_{0};
};

}  // namespace tcpqp::stock
