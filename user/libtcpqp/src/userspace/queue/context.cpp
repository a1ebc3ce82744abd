// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/queue/context.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "userspace/base/mr.hpp"
#include "userspace/queue/cq.hpp"
#include "userspace/queue/hello.hpp"
#include "userspace/queue/qp.hpp"

namespace tcpqp {
namespace stock {
namespace {

class Context final : public tcpqp_context {
public:
    Context() noexcept : tcpqp_context(false) {}
    [[nodiscard]] uint32_t engine() const noexcept override { return TCPQP_ENGINE_STOCK; }

    Made<tcpqp_mr> create_mr(void* at, size_t bytes) override {
        return {std::make_unique<Mr>(*this, at, bytes), 0, TCPQP_REASON_NONE};
    }
    // Sockets read and write a dma-buf only as the memory that it is mapped to.
    Made<tcpqp_mr> create_mr(const DmabufRegion& region) override {
        if (region.address == nullptr)
            return {nullptr, -EOPNOTSUPP, TCPQP_REASON_NONE};
        return create_mr(region.address, region.bytes);
    }
    Made<tcpqp_cq> create_cq(uint32_t entries, uint32_t flags) override {
        try {
            return {std::make_unique<Cq>(*this, entries, flags), 0, TCPQP_REASON_NONE};
        } catch (const std::system_error& e) {
            return {nullptr, -e.code().value(), TCPQP_REASON_NO_IO_URING};
        }
    }
    Made<tcpqp_qp> create_qp(tcpqp_cq& cq, const QpRequest& request) override;
};

// Our frames are batched already: nothing may wait for more.
int prepare(int socket) noexcept {
    tcp_info state{};
    socklen_t bytes = sizeof(state);
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &state, &bytes) != 0)
        return errno == EBADF ? -EBADF : -ENOTCONN;
    if (state.tcpi_state != TCP_ESTABLISHED && state.tcpi_state != TCP_CLOSE_WAIT)
        return -ENOTCONN;
    const int on = 1;
    return ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 ? 0 : -errno;
}

// The helper is asked unless frames were asked for: only it can make a module's end hear us.
int ask_helper(int socket, Wish wish, Negotiation& m, uint32_t& reason) {
    uint32_t why = TCPQP_REASON_NONE;
    if (wish != Wish::kStream)
        m.option = Option::open(socket, why);
    m.without_option = why;
    m.ours = {FrameType::kHello, 0, 0, 0, false, m.option != nullptr, wish == Wish::kOption};
    if (m.option != nullptr || wish != Wish::kOption)
        return 0;
    reason = why;
    return -EOPNOTSUPP;
}

int meet(int socket, const QpRequest& request, Negotiation& m, uint32_t& reason) {
    Wish wish = Wish::kAny;
    if (!framing_from_environment(wish))
        return -EINVAL;
    int error = ask_helper(socket, wish, m, reason);
    if (error == 0)
        error = send_hello(socket, m.ours, m.option.get());
    if (error == 0 && !request.nowait)
        error = receive_hello(socket, request.timeout_ms, m.option.get(), m.greeting, reason);
    if (reason == TCPQP_REASON_NO_HELLO && m.without_option != TCPQP_REASON_NONE)
        reason = m.without_option;
    if (error == 0 && m.greeting.done && !m.greeting.module &&
        agree(m.ours, m.greeting.peers) == Framing::kNone) {
        reason = TCPQP_REASON_FRAMING;
        error = -EPROTO;
    }
    return error;
}

Made<tcpqp_qp> Context::create_qp(tcpqp_cq& cq, const QpRequest& request) {
    Made<tcpqp_qp> made;
    // our own descriptor: the number must not become another socket's
    Fd socket(::fcntl(request.socket, F_DUPFD_CLOEXEC, 0));
    made.error = socket ? prepare(socket.get()) : -errno;
    Negotiation negotiation;
    if (made.error == 0)
        made.error = meet(socket.get(), request, negotiation, made.reason);
    if (made.error == 0)
        made.object = std::make_unique<Qp>(static_cast<Cq&>(cq), std::move(socket), request,
                                           std::move(negotiation));
    else if (made.error == -EPIPE)
        made.error = -ECONNRESET;
    return made;
}

}  // namespace
}  // namespace stock

Made<tcpqp_context> make_stock() {
    auto context = std::make_unique<stock::Context>();
    // does the kernel let us?
    const Made<tcpqp_cq> probe = context->create_cq(1, 0);
    if (probe.error != 0)
        return {nullptr, probe.error, probe.reason};
    return {std::move(context), 0, TCPQP_REASON_NONE};
}

}  // namespace tcpqp
