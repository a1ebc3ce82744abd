// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/connector.hpp"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "nccl/plugin/log.hpp"

namespace tcpqp::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

sockaddr_storage address_of(const Endpoint& e) noexcept {
    sockaddr_storage address{};
    if (std::equal(kMapped.begin(), kMapped.end(), e.address.begin())) {
        auto& in = reinterpret_cast<sockaddr_in&>(address);
        in.sin_family = AF_INET;
        in.sin_port = htons(e.port);
        std::memcpy(&in.sin_addr, &e.address[12], 4);
    } else {
        auto& in6 = reinterpret_cast<sockaddr_in6&>(address);
        in6.sin6_family = AF_INET6;
        in6.sin6_port = htons(e.port);
        std::memcpy(&in6.sin6_addr, e.address.data(), 16);
    }
    return address;
}

bool may_come_later(int error) noexcept {
    return error == ECONNREFUSED || error == ETIMEDOUT || error == EHOSTUNREACH ||
           error == ENETUNREACH || error == EADDRNOTAVAIL || error == EAGAIN;
}

}  // namespace

Result Connector::check(const Handle& handle) noexcept {
    if (handle.magic != kMagic) {
        warn(
            "the peer's handle is none of this plugin's: NCCL chose another network there. Set "
            "NCCL_NET=TCPQP and NCCL_NET_PLUGIN=tcpqp on all nodes");
        return kInvalidArgument;
    }
    if (handle.version != kProtocolVersion) {
        warn("the peer's plugin speaks version %u, this one %u: install the same on all nodes",
             handle.version, kProtocolVersion);
        return kInvalidArgument;
    }
    if (handle.rails == 0 || handle.rails > kRailsMax) {
        warn("the peer's handle names %u rails, of 1 to %u", handle.rails, kRailsMax);
        return kInvalidArgument;
    }
    return kSuccess;
}

Connector::Connector(const Handle& handle, const std::vector<const Interface*>& interfaces,
                     int limit_ms)
    : handle_(handle), until_(Clock::now() + std::chrono::milliseconds(limit_ms)) {
    if (::getrandom(&comm_, sizeof(comm_), 0) != sizeof(comm_))
        throw_errno("getrandom");
    for (size_t i = 0; i < handle.rails; i++) {
        Leg& leg = legs_.emplace_back();
        leg.from = interfaces[i % interfaces.size()];
        leg.to = address_of(handle.at[i]);
    }
}

bool Connector::is_late() const noexcept { return Clock::now() >= until_; }

Result Connector::give_up(const Leg& leg, const char* what) {
    warn("no connection to %s from %s: %s", text_of(leg.to).c_str(), leg.from->name.c_str(), what);
    return kRemoteError;
}

Result Connector::retry(Leg& leg, int error) {
    if (!may_come_later(error) || is_late())
        return give_up(leg, std::strerror(error));
    leg.rail.reset();
    leg.stage = Stage::kIdle;
    leg.again = Clock::now() + std::chrono::milliseconds(kConnectRetryMs);
    return kInProgress;
}

Result Connector::begin(Leg& leg) {
    if (Clock::now() < leg.again)
        return is_late() ? give_up(leg, "nobody answered in time (TCPQP_TIMEOUT_MS)") : kInProgress;
    Fd fd(::socket(leg.to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd)
        return give_up(leg, std::strerror(errno));
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // from the rail's own address, if it can be: the way back then is the rail, too
    if (leg.from->address.ss_family == leg.to.ss_family &&
        ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&leg.from->address),
               address_length(leg.from->address)) != 0)
        return give_up(leg, "our address has gone");
    const int error =
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&leg.to), address_length(leg.to)) == 0
            ? 0
            : errno;
    leg.rail = std::make_unique<Rail>(std::move(fd), leg.from->name);
    if (error != 0 && error != EINPROGRESS)
        return retry(leg, error);
    leg.stage = Stage::kConnecting;
    return kInProgress;
}

Result Connector::connected(Leg& leg, uint8_t index) {
    pollfd writable{leg.rail->socket(), POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0)
        return is_late() ? give_up(leg, "nobody answered in time (TCPQP_TIMEOUT_MS)") : kInProgress;
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(leg.rail->socket(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0)
        return retry(leg, error);
    if (leg.rail->probe() != 0)
        return kSystemError;
    Hello hello{};
    hello.magic = kMagic;
    hello.version = kProtocolVersion;
    hello.rail = index;
    hello.rails = handle_.rails;
    hello.nonce = handle_.nonce;
    hello.comm = comm_;
    hello.can_module = leg.rail->can_module();
    hello.must_module = Rail::must_module();
    // the first bytes of a connection always fit
    if (::send(leg.rail->socket(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
        return give_up(leg, "it ended at once");
    leg.stage = Stage::kReply;
    return kInProgress;
}

Result Connector::receive_reply(Leg& leg, uint8_t index) {
    const ssize_t n = ::recv(leg.rail->socket(), leg.bytes.data() + leg.have,
                             leg.bytes.size() - leg.have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return is_late() ? give_up(leg,
                                   "it was accepted, and nobody said a word in time: is the "
                                   "peer's NCCL stuck? (TCPQP_TIMEOUT_MS)")
                         : kInProgress;
    if (n <= 0)
        return give_up(leg, "the peer refused it: its log says why");
    leg.have += static_cast<size_t>(n);
    if (leg.have < leg.bytes.size())
        return kInProgress;
    Reply reply;
    std::memcpy(&reply, leg.bytes.data(), sizeof(reply));
    const bool known = reply.carrier == Carrier::kStock ||
                       (reply.carrier == Carrier::kModule && leg.rail->can_module());
    if (reply.magic != kMagic || reply.version != kProtocolVersion || !known)
        return give_up(leg, "what answers there is no plugin of this version");
    if (reply.answer != Answer::kYes)
        return give_up(leg,
                       "TCPQP_ENGINE asks for the module's engines, and one end has no tcp_qp "
                       "device on the way; load the module there, or unset it");
    if (leg.rail->open(reply.carrier, SendComm::depth(index)) != 0)
        return kSystemError;
    leg.stage = Stage::kOpen;
    return kSuccess;
}

Result Connector::step(Leg& leg, uint8_t index) {
    switch (leg.stage) {
        case Stage::kIdle:
            return begin(leg);
        case Stage::kConnecting:
            return connected(leg, index);
        case Stage::kReply:
            return receive_reply(leg, index);
        case Stage::kOpen:
            return kSuccess;
    }
    return kInternalError;
}

Result Connector::step() {
    Result all = kSuccess;
    for (size_t i = 0; i < legs_.size(); i++) {
        const Result result = step(legs_[i], static_cast<uint8_t>(i));
        if (result == kInProgress)
            all = kInProgress;
        else if (result != kSuccess)
            return result;
    }
    return all;
}

std::unique_ptr<SendComm> Connector::finish() {
    std::vector<Rail> rails;
    for (Leg& leg : legs_)
        rails.push_back(std::move(*leg.rail));
    auto comm = std::make_unique<SendComm>(std::move(rails));
    return comm->start() == kSuccess ? std::move(comm) : nullptr;
}

}  // namespace tcpqp::nccl
