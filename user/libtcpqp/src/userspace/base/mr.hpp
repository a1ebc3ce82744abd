// SPDX-License-Identifier: BSD-3-Clause
// Memory of the stock engine: nothing is pinned, posted work is counted.
#pragma once

#include <sys/single_threaded.h>

#include "provider/provider.hpp"

namespace tcpqp::stock {

class Mr final : public tcpqp_mr {
public:
    using tcpqp_mr::tcpqp_mr;
    [[nodiscard]] bool busy() const noexcept override { return uses_.load() != 0; }
    void hold() noexcept { add(1); }
    void drop() noexcept { add(static_cast<size_t>(-1)); }

private:
    void add(size_t n) noexcept {
        if (__libc_single_threaded != 0)
            uses_.store(uses_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
        else
            uses_.fetch_add(n);
    }

    std::atomic<size_t> uses_{0};
};

}  // namespace tcpqp::stock
