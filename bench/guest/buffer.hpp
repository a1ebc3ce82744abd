// SPDX-License-Identifier: BSD-3-Clause
// Memory to send from and receive into: huge pages where there are any, for every transport
// alike, as programs that care about throughput have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory.hpp"

namespace nupa::bench {

class Buffer {
public:
    static constexpr uint8_t kFill = 0x5a;

    // Filled with kFill, so that no page is missing when it counts.  Throws.
    explicit Buffer(size_t bytes);

    [[nodiscard]] std::span<uint8_t> bytes() const noexcept { return used_; }

private:
    programs::Pages pages_;
    std::span<uint8_t> used_;
};

}  // namespace nupa::bench
