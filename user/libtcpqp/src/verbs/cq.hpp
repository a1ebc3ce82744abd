// SPDX-License-Identifier: BSD-3-Clause
// A completion queue with its event channel: wait by poll(2) on fd(), never spin.
//
//   arm(); while (poll()) ...; wait for fd(); consume_events(); repeat
//
// Completions that arrive between arm() and the wait make fd() readable.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <span>

#include "verbs/context.hpp"

namespace tcpqp {

class CompletionQueue {
public:
    CompletionQueue(const Context& context, int entries);
    ~CompletionQueue();
    CompletionQueue(const CompletionQueue&) = delete;
    CompletionQueue& operator=(const CompletionQueue&) = delete;

    [[nodiscard]] ibv_cq* get() const noexcept { return cq_.get(); }
    [[nodiscard]] int fd() const noexcept { return channel_->fd; }

    [[nodiscard]] bool arm() noexcept;
    // Number of completions written to @out; negative: the queue is broken.
    [[nodiscard]] int poll(std::span<ibv_wc> out) noexcept;
    void consume_events() noexcept;  // one for each arm()

private:
    struct Destroy {
        void operator()(ibv_comp_channel* c) const noexcept { ibv_destroy_comp_channel(c); }
        void operator()(ibv_cq* c) const noexcept { ibv_destroy_cq(c); }
    };
    std::unique_ptr<ibv_comp_channel, Destroy> channel_;
    std::unique_ptr<ibv_cq, Destroy> cq_;
    unsigned unacked_ = 0;
};

}  // namespace tcpqp
