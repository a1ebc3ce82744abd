// SPDX-License-Identifier: BSD-3-Clause
// A time limit as poll(2) wants it: milliseconds, -1 for none.
#pragma once

#include <algorithm>
#include <chrono>

namespace tcpqp {

class Deadline {
public:
    using Clock = std::chrono::steady_clock;

    explicit Deadline(int timeout_ms) noexcept
        : endless_(timeout_ms < 0),
          at_(endless_ ? Clock::time_point::max()
                       : Clock::now() + std::chrono::milliseconds(timeout_ms)) {}

    [[nodiscard]] int left_ms() const noexcept {
        if (endless_)
            return -1;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now());
        return static_cast<int>(std::max<int64_t>(left.count(), 0));
    }
    [[nodiscard]] Clock::time_point at() const noexcept { return at_; }  // max(): no limit
    [[nodiscard]] bool over() const noexcept { return left_ms() == 0; }

private:
    bool endless_;
    Clock::time_point at_;
};

}  // namespace tcpqp
