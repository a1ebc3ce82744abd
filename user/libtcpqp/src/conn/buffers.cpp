// SPDX-License-Identifier: BSD-3-Clause
#include "conn/buffers.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

namespace tcpqp {

int Buffers::grow(tcpqp_context& context) noexcept {
    const uint32_t n = std::min(size_ == 0 ? first_ : size_, limit_ - size_);
    if (n == 0)
        return 0;
    const int error = add(context, n);
    if (error != 0)
        limit_ = size_;
    return error;
}

int Buffers::add(tcpqp_context& context, uint32_t count) noexcept {
    const size_t bytes = memory_.size() / count_;
    try {
        Made<tcpqp_mr> made = context.create_mr(&memory_[size_ * bytes], count * bytes);
        if (!made.object)
            return made.error;
        parts_.push_back(std::move(made.object));
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
    size_ += count;
    return 0;
}

void Buffers::clear() noexcept {
    parts_.clear();
    size_ = 0;
    limit_ = count_;
}

tcpqp_mr* Buffers::mr(uint32_t index) const noexcept {
    return parts_[static_cast<size_t>(std::bit_width(index / first_))].get();
}

}  // namespace tcpqp
