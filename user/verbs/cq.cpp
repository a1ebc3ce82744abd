// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/cq.hpp"

#include <fcntl.h>

#include "base/fd.hpp"

namespace tcpqp {
namespace {

// ibv_ack_cq_events() takes a mutex; destroy waits for every event to be acked.
constexpr unsigned kAckBatchEvents = 64;

}  // namespace

CompletionQueue::CompletionQueue(const Context& context, int entries, Waking waking) {
    if (waking == Waking::kChannel)
        open_channel(context);
    cq_.reset(ibv_create_cq(context.get(), entries, nullptr, channel_.get(), 0));
    if (!cq_)
        throw_errno("create a completion queue");
    if (waking == Waking::kDescriptor)
        by_fd_.emplace(context, *cq_);
}

void CompletionQueue::open_channel(const Context& context) {
    channel_.reset(ibv_create_comp_channel(context.get()));
    if (!channel_)
        throw_errno("create a completion channel");
    int flags = ::fcntl(channel_->fd, F_GETFL);
    if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0)
        throw_errno("make the completion channel non-blocking");
}

CompletionQueue::~CompletionQueue() {
    if (unacked_ != 0)
        ibv_ack_cq_events(cq_.get(), unacked_);
}

bool CompletionQueue::arm() noexcept { return by_fd_ || ibv_req_notify_cq(cq_.get(), 0) == 0; }

int CompletionQueue::poll(std::span<ibv_wc> out) noexcept {
    return ibv_poll_cq(cq_.get(), static_cast<int>(out.size()), out.data());
}

void CompletionQueue::consume_events() noexcept {
    if (by_fd_)
        return;
    ibv_cq* cq = nullptr;
    void* cookie = nullptr;
    // Armed once, there is one; a second that comes late wakes its waiter once more.
    if (ibv_get_cq_event(channel_.get(), &cq, &cookie) == 0)
        unacked_++;
    if (unacked_ < kAckBatchEvents)
        return;
    ibv_ack_cq_events(cq_.get(), unacked_);
    unacked_ = 0;
}

}  // namespace tcpqp
