// SPDX-License-Identifier: BSD-3-Clause
#include "socket.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <stdexcept>

#include "clock.hpp"

namespace nupa::bench {

namespace {

constexpr int kBusyPollUs = 50;
// A loop looks at the clock in each of its first turns, which may have waited themselves, and then
// once in so many.
constexpr uint64_t kLookFirst = 16;
constexpr uint64_t kLookEvery = 1 << 16;

// Spins for kSilenceLimitMs at most.
class SpinLimit {
public:
    void again() {
        if (turns_++ > kLookFirst && turns_ % kLookEvery)
            return;
        const uint64_t now = now_ns();
        if (!began_ns_)
            began_ns_ = now;
        if (now - began_ns_ > uint64_t{kSilenceLimitMs} * 1000000)
            throw std::runtime_error("sockets: nothing moves");
    }

private:
    uint64_t turns_ = 0, began_ns_ = 0;
};

}  // namespace

void busy_poll(int fd, int us) {
    if (setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof us))
        tcpqp::throw_errno("SO_BUSY_POLL");
    // Where napi_defer_hard_irqs is set, the device's interrupts stay off between two calls.
    const int prefer = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &prefer, sizeof prefer))
        tcpqp::throw_errno("SO_PREFER_BUSY_POLL");
}

Flows::Flows(std::vector<tcpqp::Fd> sockets, bool no_delay, bool spins) {
    const int one = 1;
    const timeval limit{kSilenceLimitMs / 1000, 0};
    for (tcpqp::Fd& fd : sockets) {
        if (no_delay)
            setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (spins)
            busy_poll(fd.get(), kBusyPollUs);
        if ((spins || sockets.size() > 1) && fcntl(fd.get(), F_SETFL, O_NONBLOCK) < 0)
            tcpqp::throw_errno("make a socket non-blocking");
        flows_.push_back({std::move(fd)});
    }
}

void Flows::begin(const Spec& spec, const Lengths& lengths, uint64_t messages) {
    const auto count = static_cast<uint32_t>(flows_.size());
    open_ = 0;
    shares_.clear();
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t share = share_of(messages, i, count);
        flows_[i].left = spec.mixed ? lengths.total(share) : share * spec.bytes;
        flows_[i].done = flows_[i].message = flows_[i].offset = 0;
        open_ += flows_[i].left > 0;
    }
}

void Flows::advance(Flow& flow, uint64_t bytes) {
    flow.left -= bytes;
    flow.done += bytes;
    if (flow.left)
        return;
    open_--;
    if (shares_.empty())
        for (const Flow& f : flows_)
            shares_.push_back(f.done);
}

void Flows::wait(short events) {
    polled_.clear();
    for (const Flow& f : flows_)
        if (f.left)
            polled_.push_back({f.fd.get(), events, 0});
    const int n = poll(polled_.data(), polled_.size(), kSilenceLimitMs);
    if (n == 0 || (n < 0 && errno != EINTR))
        throw std::runtime_error("sockets: nothing moves");
}

void send_all(int fd, const void* data, size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    SpinLimit limit;
    while (bytes) {
        const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            limit.again();
            continue;
        }
        if (n <= 0)
            tcpqp::throw_errno("send");
        at += n;
        bytes -= static_cast<size_t>(n);
    }
}

// MSG_WAITALL may end early for a reason that is no error (io_uring's task work, a signal).
void receive_all(int fd, void* data, size_t bytes) {
    auto* at = static_cast<char*>(data);
    SpinLimit limit;
    while (bytes) {
        const ssize_t n = recv(fd, at, bytes, MSG_WAITALL);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            limit.again();
            continue;
        }
        if (n < 0)
            tcpqp::throw_errno("receive");
        if (n == 0)
            throw std::runtime_error("receive: the other end closed");
        at += n;
        bytes -= static_cast<size_t>(n);
    }
}

}  // namespace nupa::bench
