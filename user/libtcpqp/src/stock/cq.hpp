// SPDX-License-Identifier: BSD-3-Clause
// One io_uring, the completions of its queue pairs, and the lock of both.
//
// The descriptor is the ring's own: readable while a CQE waits.  The last CQE
// is left in the ring ("held") while completions are not handed out yet or
// receives are not submitted yet, so that a level-triggered waiter comes back
// and the next call that submits anyway takes the receives along.
#pragma once

#include <liburing.h>

#include <mutex>
#include <vector>

#include "provider.hpp"

namespace tcpqp::stock {

class Qp;
class Flight;

// What a CQE belongs to; its address is the SQE's user_data.
struct Op {
    Qp* qp = nullptr;          // nullptr: nobody's (cancel, nop)
    Flight* flight = nullptr;  // nullptr: the receive
};

class Cq final : public tcpqp_cq {
public:
    // Throws std::system_error: io_uring refused.
    Cq(tcpqp_context& context, uint32_t entries);
    ~Cq() override;

    [[nodiscard]] int fd() const noexcept override { return ring_.ring_fd; }
    int poll(std::span<tcpqp_completion> out) noexcept override;
    int wait(int timeout_ms) noexcept override;

    // For queue pairs; all with the lock held.
    [[nodiscard]] std::mutex& lock() noexcept { return lock_; }
    // May throw std::bad_alloc; room for @count more completions at once.
    void add_room(size_t count);
    void drop_room(size_t count) noexcept { room_ -= count; }
    // nullptr: the kernel takes no more.  Urgent ones are submitted by settle().
    io_uring_sqe* sqe(Op& op, bool urgent) noexcept;
    void cancel(Op& op) noexcept;
    void push(const tcpqp_completion& completion) noexcept;
    void forget(const tcpqp_qp* qp) noexcept;
    void reap() noexcept;
    // Handles CQEs until @done; the lock stays taken.
    template <typename Done>
    void drain(Done done) noexcept {
        for (reap(); !done(); reap())
            wait_one();
    }
    // Before each unlock.  @idle: the caller is going to wait.
    void settle(bool idle) noexcept;

private:
    void submit() noexcept;
    void release_held() noexcept;
    void wait_one() noexcept;
    void nudge() noexcept;

    std::mutex lock_;
    io_uring ring_{};
    Op nobody_;
    bool held_ = false;                    // the first CQE in the ring has been handled
    bool urgent_ = false;                  // an SQE that must not wait
    std::vector<tcpqp_completion> ready_;  // a ring
    size_t room_ = 0;
    size_t head_ = 0;
    size_t count_ = 0;
};

}  // namespace tcpqp::stock
