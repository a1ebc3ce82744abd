// SPDX-License-Identifier: BSD-3-Clause
// A completion queue and how to wait for it, never spinning.
//
// By its event channel, as verbs have it: completions that arrive between arm() and the
// wait make fd() readable.
//
//   arm(); while (poll()) ...; wait for fd(); consume_events(); repeat
//
// By a completion descriptor, which is readable while there is something to poll:
//
//   while (poll()) ...; descriptor().wait(); repeat
//
// There the calls of the first way do nothing and succeed, so that it works as well.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>
#include <span>

#include "verbs/context.hpp"
#include "verbs/cq_fd.hpp"

namespace tcpqp {

enum class Waking { kChannel, kDescriptor };

class CompletionQueue {
public:
    // Throws std::system_error.
    CompletionQueue(const Context& context, int entries, Waking waking = Waking::kChannel);
    ~CompletionQueue();
    CompletionQueue(const CompletionQueue&) = delete;
    CompletionQueue& operator=(const CompletionQueue&) = delete;

    [[nodiscard]] ibv_cq* get() const noexcept { return cq_.get(); }
    [[nodiscard]] int fd() const noexcept { return by_fd_ ? by_fd_->fd() : channel_->fd; }
    [[nodiscard]] bool has_descriptor() const noexcept { return by_fd_.has_value(); }
    [[nodiscard]] const CqDescriptor& descriptor() const noexcept { return *by_fd_; }

    [[nodiscard]] bool arm() noexcept;
    // Number of completions written to @out; negative: the queue is broken.
    [[nodiscard]] int poll(std::span<ibv_wc> out) noexcept;
    void consume_events() noexcept;  // one for each arm()

private:
    void open_channel(const Context& context);
    struct Destroy {
        void operator()(ibv_comp_channel* c) const noexcept { ibv_destroy_comp_channel(c); }
        void operator()(ibv_cq* c) const noexcept { ibv_destroy_cq(c); }
    };
    std::unique_ptr<ibv_comp_channel, Destroy> channel_;
    std::unique_ptr<ibv_cq, Destroy> cq_;
    std::optional<CqDescriptor> by_fd_;
    unsigned unacked_ = 0;
};

}  // namespace tcpqp
