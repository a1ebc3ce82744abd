// SPDX-License-Identifier: BSD-3-Clause
// Memory of a queue pair's messages: this machine's, or a lease of the switch's pool.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tcpqp.hpp"

namespace perf {

class Memory {
public:
    Memory(size_t bytes, bool pool) {
        if (pool)
            lease_.emplace(bytes);
        else
            pages_.assign(bytes, std::byte{'q'});
    }
    [[nodiscard]] std::span<std::byte> bytes() noexcept {
        return lease_ ? lease_->bytes() : std::span(pages_);
    }
    [[nodiscard]] tcpqp::MemoryRegion registered(const tcpqp::Context& context) {
        return lease_ ? lease_->registered(context) : tcpqp::MemoryRegion(context, pages_);
    }

private:
    std::vector<std::byte> pages_;
    std::optional<tcpqp::PoolMemory> lease_;
};

}  // namespace perf
