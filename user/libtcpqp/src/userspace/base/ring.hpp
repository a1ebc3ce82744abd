// SPDX-License-Identifier: BSD-3-Clause
// A queue of fixed size.  The caller knows that there is room.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>

namespace tcpqp::stock {

template <typename T>
class Ring {
public:
    // Throws std::bad_alloc.
    explicit Ring(size_t depth)
        : mask_(std::bit_ceil(std::max<size_t>(depth, 1)) - 1),
          items_(std::make_unique<T[]>(mask_ + 1)) {}

    [[nodiscard]] size_t size() const noexcept { return tail_ - head_; }
    [[nodiscard]] bool empty() const noexcept { return tail_ == head_; }
    [[nodiscard]] T& operator[](size_t i) const noexcept { return items_[(head_ + i) & mask_]; }

    void push(const T& item) noexcept {
        if (empty())
            head_ = tail_ = 0;  // a few at a time stay in a few lines of the cache
        items_[tail_++ & mask_] = item;
    }
    void pop(size_t count = 1) noexcept { head_ += count; }
    // Drops what @drop says, the rest stays in order.
    template <typename Drop>
    void drop_if(Drop drop) noexcept {
        size_t kept = 0;
        for (size_t i = 0; i < size(); i++)
            if (!drop((*this)[i]))
                (*this)[kept++] = (*this)[i];
        tail_ = head_ + kept;
    }

private:
    size_t mask_;
    std::unique_ptr<T[]> items_;
    size_t head_ = 0;  // free-running
    size_t tail_ = 0;
};

}  // namespace tcpqp::stock
