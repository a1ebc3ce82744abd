// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/cq_fd.hpp"

#include <tcp_qp/tcp_qp.h>

#include "verbs/ioctl.hpp"

namespace tcpqp {
namespace {

constexpr uint64_t kNsPerMs = 1000000;

int open_descriptor(const Context& context, uint32_t cq_handle, int32_t& fd) noexcept {
    std::array attrs{value_attr(TCP_QP_ATTR_CQ_FD_HANDLE, cq_handle),
                     pointer_attr(TCP_QP_ATTR_CQ_FD_RESP, &fd, sizeof(fd))};
    return invoke(context.cmd_fd(), UVERBS_OBJECT_CQ, TCP_QP_METHOD_CQ_FD, attrs);
}

}  // namespace

CqDescriptor::CqDescriptor(const Context& context, const ibv_cq& cq) {
    int32_t fd = -1;
    if (const int error = open_descriptor(context, cq.handle, fd); error != 0)
        throw_errno("open a completion descriptor", error);
    fd_.reset(fd);
}

int CqDescriptor::call(uint32_t flags, uint32_t qp_number, int timeout_ms) const noexcept {
    tcp_qp_cq_call call{};
    call.flags = flags;
    call.qpn = qp_number;
    if ((flags & TCP_QP_CQ_WAIT) != 0 && timeout_ms >= 0) {
        call.flags |= TCP_QP_CQ_TIMEOUT;
        call.timeout_ns = static_cast<uint64_t>(timeout_ms) * kNsPerMs;
    }
    return ::ioctl(fd_.get(), TCP_QP_IOCTL_CQ, &call) == 0 ? 0 : errno;
}

int CqDescriptor::wait(int timeout_ms) const noexcept {
    return call(TCP_QP_CQ_WAIT, 0, timeout_ms);
}

int CqDescriptor::ring(uint32_t qp_number) const noexcept {
    return call(TCP_QP_CQ_DOORBELL, qp_number, -1);
}

int CqDescriptor::ring_and_wait(uint32_t qp_number, int timeout_ms) const noexcept {
    return call(TCP_QP_CQ_DOORBELL | TCP_QP_CQ_WAIT, qp_number, timeout_ms);
}

int CqDescriptor::signal() const noexcept { return call(TCP_QP_CQ_SIGNAL, 0, -1); }

int CqDescriptor::clear() const noexcept { return call(TCP_QP_CQ_CLEAR, 0, -1); }

bool has_cq_descriptors(const Context& context) noexcept {
    int32_t fd = -1;
    return open_descriptor(context, kNoHandle, fd) != EPROTONOSUPPORT;
}

}  // namespace tcpqp
