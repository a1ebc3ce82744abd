// SPDX-License-Identifier: BSD-3-Clause
// Posted work requests, oldest first, in a ring of fixed size.
#pragma once

#include <vector>

#include "stock/mr.hpp"

namespace tcpqp::stock {

class WorkQueue {
public:
    explicit WorkQueue(uint32_t depth) : works_(depth) {}

    [[nodiscard]] size_t size() const noexcept { return count_; }
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
    [[nodiscard]] size_t depth() const noexcept { return works_.size(); }
    // A slot is free again when its completion has been polled, not before:
    // so completions have a bound too.
    [[nodiscard]] size_t room() const noexcept { return works_.size() - count_ - unpolled_; }
    void polled() noexcept { unpolled_--; }
    [[nodiscard]] const tcpqp_work& operator[](size_t i) const noexcept {
        return works_[wrapped(head_ + i)];
    }

    void push(const tcpqp_work& work) noexcept {
        works_[wrapped(head_ + count_++)] = work;
        if (work.mr != nullptr)
            static_cast<Mr*>(work.mr)->hold();
    }
    tcpqp_work pop() noexcept {
        const tcpqp_work work = works_[head_];
        head_ = wrapped(head_ + 1);
        count_--;
        unpolled_++;
        if (work.mr != nullptr)
            static_cast<Mr*>(work.mr)->drop();
        return work;
    }

private:
    // @i is below twice the size; a division is slower than all the rest.
    [[nodiscard]] size_t wrapped(size_t i) const noexcept {
        return i < works_.size() ? i : i - works_.size();
    }

    std::vector<tcpqp_work> works_;
    size_t head_ = 0;
    size_t count_ = 0;
    size_t unpolled_ = 0;
};

}  // namespace tcpqp::stock
