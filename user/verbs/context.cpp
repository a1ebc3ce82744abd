// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/context.hpp"

#include <fcntl.h>

#include "base/fd.hpp"

namespace tcpqp {

Context::Context(ibv_device* device) : context_(ibv_open_device(device)) {
    if (!context_)
        throw_errno(std::string("open RDMA device ") + ibv_get_device_name(device));
    int flags = ::fcntl(event_fd(), F_GETFL);
    if (flags < 0 || ::fcntl(event_fd(), F_SETFL, flags | O_NONBLOCK) < 0)
        throw_errno("make the RDMA event descriptor non-blocking");
    pd_.reset(ibv_alloc_pd(context_.get()));
    if (!pd_)
        throw_errno("allocate a protection domain");
}

std::string Context::name() const { return ibv_get_device_name(context_->device); }

std::optional<ibv_event_type> Context::event() noexcept {
    ibv_async_event event{};
    if (ibv_get_async_event(context_.get(), &event) != 0)
        return std::nullopt;
    ibv_ack_async_event(&event);
    return event.event_type;
}

}  // namespace tcpqp
