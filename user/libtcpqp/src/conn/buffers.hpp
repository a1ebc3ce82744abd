// SPDX-License-Identifier: BSD-3-Clause
// A connection's buffers of one direction: registered when they are needed, each time as many
// as there are.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "provider/provider.hpp"

namespace tcpqp {

class Buffers {
public:
    // @memory: of @count buffers, of which @first come first.
    Buffers(std::span<std::byte> memory, uint32_t count, uint32_t first) noexcept
        : memory_(memory), count_(count), first_(first), limit_(count) {}

    // Registers more of them.  0, also if all are; or a negative errno, after which there
    // will be no more.
    int grow(tcpqp_context& context) noexcept;
    // None is registered any more.
    void clear() noexcept;

    // Those that are: 0 .. size() - 1.
    [[nodiscard]] uint32_t size() const noexcept { return size_; }
    [[nodiscard]] bool may_grow() const noexcept { return size_ != limit_; }
    [[nodiscard]] tcpqp_mr* mr(uint32_t index) const noexcept;

private:
    int add(tcpqp_context& context, uint32_t count) noexcept;

    const std::span<std::byte> memory_;
    const uint32_t count_, first_;
    uint32_t size_ = 0;
    uint32_t limit_;                                // of size_
    std::vector<std::unique_ptr<tcpqp_mr>> parts_;  // first_, first_, 2 * first_, ... buffers
};

}  // namespace tcpqp
