// SPDX-License-Identifier: BSD-3-Clause
#include "tcp.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <stdexcept>

namespace nupa::programs {
namespace {

constexpr int kTries = 200;
constexpr int kTryEveryMs = 50;

struct FreeAddress {
    void operator()(addrinfo* a) const noexcept { freeaddrinfo(a); }
};

}  // namespace

tcpqp::Fd listen_on(uint16_t port, int backlog) {
    tcpqp::Fd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int one = 1;
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) || listen(fd.get(), backlog))
        tcpqp::throw_errno("listen");
    return fd;
}

tcpqp::Fd accept_from(const tcpqp::Fd& listener) {
    tcpqp::Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd)
        tcpqp::throw_errno("accept");
    return fd;
}

tcpqp::Fd connect_to(const std::string& address, uint16_t port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found))
        throw std::runtime_error(address + ": not a numeric address");
    std::unique_ptr<addrinfo, FreeAddress> to(found);
    for (int i = 0; i < kTries; i++) {
        tcpqp::Fd fd(socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!connect(fd.get(), to->ai_addr, to->ai_addrlen))
            return fd;
        poll(nullptr, 0, kTryEveryMs);
    }
    tcpqp::throw_errno("connect to " + address);
}

}  // namespace nupa::programs
