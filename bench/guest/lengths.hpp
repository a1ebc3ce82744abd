// SPDX-License-Identifier: BSD-3-Clause
// How long the messages of a phase are: all alike, or a mix that both ends know.
#pragma once

#include <cstdint>
#include <vector>

#include "spec.hpp"

namespace nupa::bench {

class Lengths {
public:
    explicit Lengths(const Spec& spec);

    // Of message @n of a phase.
    [[nodiscard]] uint32_t of(uint64_t n) const noexcept { return table_[n % table_.size()]; }
    // Of the first @messages together.
    [[nodiscard]] uint64_t total(uint64_t messages) const noexcept;

private:
    std::vector<uint32_t> table_;
    uint64_t sum_ = 0;  // of the table
};

}  // namespace nupa::bench
