// SPDX-License-Identifier: BSD-3-Clause
// Memory that the kernel module pinned.
#pragma once

#include "provider/provider.hpp"
#include "verbs/mr.hpp"

namespace tcpqp::module {

class Mr final : public tcpqp_mr {
public:
    Mr(tcpqp_context& owner, tcpqp::Mr mr, void* at, size_t n) noexcept
        : tcpqp_mr(owner, at, n), mr_(std::move(mr)) {}
    [[nodiscard]] bool busy() const noexcept override { return false; }
    [[nodiscard]] uint32_t lkey() const noexcept { return mr_.lkey(); }
    // Its addresses are memory of ours: a dma-buf's need be none's.
    [[nodiscard]] bool is_mapped() const noexcept { return mr_.get() != nullptr; }

private:
    tcpqp::Mr mr_;
};

}  // namespace tcpqp::module
