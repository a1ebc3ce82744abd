// SPDX-License-Identifier: BSD-3-Clause
// Memory of the stock engine: nothing is pinned, posted work is counted.
#pragma once

#include "provider.hpp"

namespace tcpqp::stock {

class Mr final : public tcpqp_mr {
public:
    using tcpqp_mr::tcpqp_mr;
    [[nodiscard]] bool busy() const noexcept override { return uses_.load() != 0; }
    void hold() noexcept { uses_++; }
    void drop() noexcept { uses_--; }

private:
    std::atomic<size_t> uses_{0};
};

}  // namespace tcpqp::stock
