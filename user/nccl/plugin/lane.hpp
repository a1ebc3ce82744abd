// SPDX-License-Identifier: BSD-3-Clause
// A rail of the stock engine, which one of two threads drives: the caller of NCCL's table, or,
// while long messages are under way, a worker (workers.hpp).  In the second case the caller only
// leaves work and takes completions here, and the bytes are copied beside it.
//
//   caller's --a long message is posted--> worker's --its last long one is taken--> caller's
//
// A receive's length says little of its message, so receives count as long after a long message.
// Everything but step() is for the caller's thread, under its comm's lock.
#pragma once

#include <tcpqp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "nccl/plugin/limits.hpp"
#include "nccl/plugin/rail.hpp"
#include "nccl/plugin/workers.hpp"

namespace tcpqp::nccl {

class Lane {
public:
    Lane(Rail& rail, std::shared_ptr<Workers> workers);
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    // As tcpqp_post_send() and tcpqp_post_recv(); what a worker could not post is refused() later.
    int post(std::span<const tcpqp_work> works, bool sends);
    // As Rail::poll().
    int poll(std::span<tcpqp_completion> out) noexcept;
    // 0, or why a worker's post failed: that work never completes.
    [[nodiscard]] int refused() const noexcept { return refused_.load(std::memory_order_acquire); }
    // No worker drives it when it returns.  All that was left is posted, or forgotten.
    void take_back() noexcept;
    void stop() noexcept;

    // The worker's: posts and polls once.  False: nothing happened.
    bool step() noexcept;
    [[nodiscard]] bool is_workers() const noexcept {
        return handed_.load(std::memory_order_acquire);
    }

private:
    struct Left {
        tcpqp_work work;
        bool sends;
    };

    [[nodiscard]] bool is_long(const tcpqp_work& work, bool sends) const noexcept {
        return work.length >= kLongBytes && (sends || receives_long_);
    }
    int post_now(std::span<const tcpqp_work> works, bool sends) const noexcept;
    void leave(std::span<const tcpqp_work> works, bool sends);
    int take(std::span<tcpqp_completion> out) noexcept;
    bool post_left() noexcept;

    Rail& rail_;
    const std::shared_ptr<Workers> workers_;
    Workers::Worker* worker_ = nullptr;
    unsigned long_ones_ = 0;      // posted since it was handed over, and not taken
    bool receives_long_ = false;  // the last message was

    std::mutex drive_;  // whoever posts and polls on the rail, while it may be a worker's
    std::atomic<bool> handed_{false};
    std::atomic<int> refused_{0};

    std::mutex lock_;  // of what follows
    std::vector<Left> left_;
    std::vector<tcpqp_completion> done_;
    std::atomic<bool> has_left_{false}, has_done_{false};
    std::vector<Left> posting_;  // the driver's, as is
    int refusal_ = 0;            // what refused() says when all is taken that came before
};

}  // namespace tcpqp::nccl
