// SPDX-License-Identifier: BSD-3-Clause
// The switch's memory that one port may use for what its host asks it to remember.
#pragma once

#include <cstddef>

namespace nupa {

class MemoryBudget {
public:
    explicit MemoryBudget(std::size_t max_bytes) noexcept : max_(max_bytes) {}

    // False: it would be more than the port may have; nothing is taken.
    bool take(std::size_t bytes) noexcept {
        if (bytes > max_ - used_)
            return false;
        used_ += bytes;
        return true;
    }
    void give_back(std::size_t bytes) noexcept { used_ -= bytes; }
    void clear() noexcept { used_ = 0; }
    std::size_t used() const noexcept { return used_; }
    std::size_t max() const noexcept { return max_; }

private:
    std::size_t max_;
    std::size_t used_ = 0;
};

}  // namespace nupa
