// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/queue/hello.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <span>

#include "provider/deadline.hpp"
#include "userspace/frames/frame.hpp"

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

// @wakeup: a descriptor too, or -1.  No signal ends it: our hello has left, and none may follow.
int wait_readable(int socket, int wakeup, const Deadline& deadline) noexcept {
    std::array<pollfd, 2> either{{{socket, POLLIN, 0}, {wakeup, POLLIN, 0}}};
    int n = 0;
    do
        n = ::poll(either.data(), either.size(), deadline.left_ms());
    while (n < 0 && errno == EINTR);
    return n > 0 ? 0 : n < 0 ? -errno : -ETIMEDOUT;
}

// Bytes received, 0: none now, or a negative errno with a reason.
int receive_some(int socket, std::span<std::byte> at, int flags, uint32_t& reason) noexcept {
    const ssize_t n = ::recv(socket, at.data(), at.size(), MSG_DONTWAIT | flags);
    if (n > 0)
        return static_cast<int>(n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    reason = n == 0 ? TCPQP_REASON_CLOSED : TCPQP_REASON_RESET;
    return -ECONNRESET;
}

// A module's first bytes are no hello, and stay.  They are looked at before its rtr is,
// which is seen before they can be read.  @unsure: it may be one.
int receive_part(int socket, std::span<std::byte> to, Option* unsure, Greeting& greeting,
                 uint32_t& reason) noexcept {
    const int n = receive_some(socket, to, unsure != nullptr ? MSG_PEEK : 0, reason);
    greeting.module = unsure != nullptr && unsure->module_is_ready();
    if (greeting.module || unsure == nullptr || n <= 0)
        return n;
    return receive_some(socket, to.first(static_cast<size_t>(n)), 0, reason);
}

}  // namespace

int send_hello(int socket, const Frame& ours, Option* option) noexcept {
    FrameBytes bytes;
    encode(ours, bytes.data());
    if (option != nullptr)
        option->announce_hello();
    const ssize_t n =
        ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT | MSG_EOR);
    if (n == static_cast<ssize_t>(bytes.size())) {
        if (option != nullptr)
            option->took(kFrameBytes);
        return 0;
    }
    // nobody but us has written yet, so 24 bytes fit
    return n < 0 ? -errno : -ENOBUFS;
}

int receive_hello(int socket, int timeout_ms, Option* option, Greeting& greeting,
                  uint32_t& reason) noexcept {
    const Deadline deadline(timeout_ms);
    FrameBytes bytes;
    for (size_t have = 0; have < bytes.size();) {
        Option* unsure = have == 0 ? option : nullptr;
        const int n =
            receive_part(socket, std::span(bytes).subspan(have), unsure, greeting, reason);
        if (greeting.module)
            break;
        if (n < 0)
            return n;
        have += static_cast<size_t>(n);
        reason = reason_of(bytes.data(), have);
        if (reason != TCPQP_REASON_NONE)
            return -EPROTO;
        const int wakeup = unsure != nullptr ? option->wakeup_fd() : -1;
        const int error = n != 0 ? 0 : wait_readable(socket, wakeup, deadline);
        if (error == -ETIMEDOUT)
            reason = TCPQP_REASON_NO_HELLO;
        if (error != 0)
            return error;
    }
    greeting.done = true;
    reason = greeting.module ? +TCPQP_REASON_NONE : decode(bytes.data(), greeting.peers);
    return 0;
}

}  // namespace tcpqp::stock
