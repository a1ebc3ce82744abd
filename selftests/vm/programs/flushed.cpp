// SPDX-License-Identifier: BSD-3-Clause
#include "flushed.hpp"

#include <poll.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <stdexcept>

#include "base/fd.hpp"

namespace nupa::programs {

Flushed::Flushed(const tcpqp::Context& context, const tcpqp::CompletionQueue& cq)
    : qp_(context, cq, {.sends = 1, .receives = kReceivesMax}) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    if (const int error = ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE); error != 0)
        tcpqp::throw_errno("put the queue pair in error", error);
}

void Flushed::post(uint32_t count) {
    const std::array<tcpqp::Work, kReceivesMax> works{};
    if (const int error = qp_.post_receives({works.data(), count}); error != 0)
        tcpqp::throw_errno("post receives", error);
}

void Flushed::complete(uint32_t count) {
    post(count);
    if (const int error = qp_.ring_doorbell(); error != 0)
        tcpqp::throw_errno("ring the doorbell", error);
}

int call_cq(int fd, uint32_t flags, uint32_t qp_number, uint64_t timeout_ns) {
    tcp_qp_cq_call call{};
    call.flags = flags;
    call.qpn = qp_number;
    call.timeout_ns = timeout_ns;
    return ::ioctl(fd, TCP_QP_IOCTL_CQ, &call) == 0 ? 0 : errno;
}

short polled(int fd, int timeout_ms) {
    pollfd p{fd, POLLIN, 0};
    while (::poll(&p, 1, timeout_ms) < 0)
        if (errno != EINTR)
            tcpqp::throw_errno("poll");
    return p.revents;
}

void expect(const std::string& what, long found, long wanted) {
    if (found != wanted)
        throw std::runtime_error(what + ": " + std::to_string(found) + ", not " +
                                 std::to_string(wanted));
}

}  // namespace nupa::programs
