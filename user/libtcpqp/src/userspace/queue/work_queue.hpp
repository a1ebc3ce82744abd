// SPDX-License-Identifier: BSD-3-Clause
// Posted work requests, oldest first.
#pragma once

#include "userspace/base/mr.hpp"
#include "userspace/base/ring.hpp"

namespace tcpqp::stock {

class WorkQueue {
public:
    explicit WorkQueue(uint32_t depth) : works_(depth), depth_(depth) {}

    [[nodiscard]] size_t size() const noexcept { return works_.size(); }
    [[nodiscard]] bool empty() const noexcept { return works_.empty(); }
    [[nodiscard]] size_t depth() const noexcept { return depth_; }
    // A slot is free again when its completion has been polled, not before:
    // so completions have a bound too.
    [[nodiscard]] size_t room() const noexcept { return depth_ - size() - unpolled_; }
    void polled() noexcept { unpolled_--; }
    [[nodiscard]] const tcpqp_work& operator[](size_t i) const noexcept { return works_[i]; }

    void push(const tcpqp_work& work) noexcept {
        works_.push(work);
        if (work.mr != nullptr)
            static_cast<Mr*>(work.mr)->hold();
    }
    // A request that is done before it could wait here.
    void pass() noexcept { unpolled_++; }
    // The oldest has been completed.
    void pop() noexcept {
        if (works_[0].mr != nullptr)
            static_cast<Mr*>(works_[0].mr)->drop();
        works_.pop();
        unpolled_++;
    }

private:
    Ring<tcpqp_work> works_;
    const size_t depth_;
    size_t unpolled_ = 0;
};

}  // namespace tcpqp::stock
