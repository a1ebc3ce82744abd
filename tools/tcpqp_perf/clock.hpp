// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace perf {

class Stopwatch {
public:
    [[nodiscard]] double seconds() const noexcept {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace perf
