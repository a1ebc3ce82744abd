// SPDX-License-Identifier: BSD-3-Clause
// An opened RDMA device with its protection domain: what everything else hangs on.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>
#include <string>

namespace tcpqp {

class Context {
public:
    // Throws std::system_error.
    explicit Context(ibv_device* device);

    [[nodiscard]] ibv_context* get() const noexcept { return context_.get(); }
    [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }
    [[nodiscard]] int cmd_fd() const noexcept { return context_->cmd_fd; }
    [[nodiscard]] int event_fd() const noexcept { return context_->async_fd; }
    [[nodiscard]] std::string name() const;

    // One asynchronous event, or none if there is none; never blocks.
    [[nodiscard]] std::optional<ibv_event_type> event() noexcept;

private:
    struct Close {
        void operator()(ibv_context* c) const noexcept { ibv_close_device(c); }
        void operator()(ibv_pd* p) const noexcept { ibv_dealloc_pd(p); }
    };
    std::unique_ptr<ibv_context, Close> context_;
    std::unique_ptr<ibv_pd, Close> pd_;
};

}  // namespace tcpqp
