// SPDX-License-Identifier: BSD-3-Clause
#include "stock/hello.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "deadline.hpp"
#include "stock/frame.hpp"

namespace tcpqp::stock {
namespace {

uint32_t reason_of(const std::byte* at, size_t have) noexcept {
    Frame frame;
    if (!may_begin({at, have}))
        return TCPQP_REASON_PEER_NOT_STOCK;
    if (have < kFrameBytes)
        return TCPQP_REASON_NONE;
    const uint32_t reason = decode(at, frame);
    if (reason == TCPQP_REASON_VERSION)
        return reason;
    return reason == TCPQP_REASON_NONE && frame.type == FrameType::kHello
               ? TCPQP_REASON_NONE
               : TCPQP_REASON_PEER_NOT_STOCK;
}

int wait_readable(int socket, const Deadline& deadline) noexcept {
    pollfd p{socket, POLLIN, 0};
    const int n = ::poll(&p, 1, deadline.left_ms());
    return n > 0 ? 0 : n == 0 ? -ETIMEDOUT : -errno;
}

}  // namespace

int send_hello(int socket) noexcept {
    FrameBytes bytes;
    encode(Frame{FrameType::kHello, 0, 0, 0, false}, bytes.data());
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == static_cast<ssize_t>(bytes.size()))
        return 0;
    // nobody but us has written yet, so 24 bytes fit
    return n < 0 ? -errno : -ENOBUFS;
}

int receive_hello(int socket, int timeout_ms, uint32_t& reason) noexcept {
    const Deadline deadline(timeout_ms);
    FrameBytes bytes;
    for (size_t have = 0; have < bytes.size();) {
        const ssize_t n = ::recv(socket, bytes.data() + have, bytes.size() - have, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            reason = n == 0 ? TCPQP_REASON_CLOSED : TCPQP_REASON_RESET;
            return -ECONNRESET;
        }
        if (n < 0) {
            const int error = wait_readable(socket, deadline);
            if (error == -ETIMEDOUT)
                reason = TCPQP_REASON_NO_HELLO;
            if (error != 0)
                return error;
            continue;
        }
        have += static_cast<size_t>(n);
        reason = reason_of(bytes.data(), have);
        if (reason != TCPQP_REASON_NONE)
            return -EPROTO;
    }
    return 0;
}

}  // namespace tcpqp::stock
