// SPDX-License-Identifier: BSD-3-Clause
#include "tcp.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace nupa::programs {
namespace {

constexpr int kTries = 200;
constexpr int kTryEveryMs = 50;

using Name = decltype(&getpeername);

uint16_t port_of(const tcpqp::Fd& socket, Name name) {
    sockaddr_storage at{};
    socklen_t bytes = sizeof at;
    if (name(socket.get(), reinterpret_cast<sockaddr*>(&at), &bytes))
        tcpqp::throw_errno("the port of a connection");
    return at.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&at)->sin6_port
                                    : reinterpret_cast<sockaddr_in*>(&at)->sin_port;
}

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

void meet(const tcpqp::Fd& control) {
    char byte = 0;
    if (::send(control.get(), &byte, 1, MSG_NOSIGNAL) != 1 ||
        ::recv(control.get(), &byte, 1, MSG_WAITALL) != 1)
        tcpqp::throw_errno("meet the other end");
}

std::vector<tcpqp::Fd> accept_many(const tcpqp::Fd& listener, const tcpqp::Fd& control,
                                   size_t count) {
    meet(control);  // or one of the others could be accepted in its place
    std::vector<tcpqp::Fd> any, sorted(count);
    for (size_t i = 0; i < count; i++)
        any.push_back(accept_from(listener));
    std::vector<uint16_t> ports(count);
    const auto bytes = static_cast<ssize_t>(count * sizeof ports[0]);
    if (recv(control.get(), ports.data(), static_cast<size_t>(bytes), MSG_WAITALL) != bytes)
        tcpqp::throw_errno("receive the peer's ports");
    size_t late = 0;
    for (tcpqp::Fd& socket : any) {
        const auto at = std::ranges::find(ports, port_of(socket, getpeername));
        late += at - ports.begin() != &socket - any.data();
        if (at == ports.end())
            throw std::runtime_error("a connection that the peer did not name");
        sorted[static_cast<size_t>(at - ports.begin())] = std::move(socket);
    }
    if (late)
        fprintf(stderr, "%zu of %zu connections were accepted in another order\n", late, count);
    return sorted;
}

std::vector<tcpqp::Fd> connect_many(const std::string& address, uint16_t port,
                                    const tcpqp::Fd& control, size_t count) {
    std::vector<tcpqp::Fd> sockets;
    std::vector<uint16_t> ports;
    meet(control);
    for (size_t i = 0; i < count; i++) {
        sockets.push_back(connect_to(address, port));
        ports.push_back(port_of(sockets.back(), getsockname));
    }
    const auto bytes = static_cast<ssize_t>(count * sizeof ports[0]);
    if (send(control.get(), ports.data(), static_cast<size_t>(bytes), 0) != bytes)
        tcpqp::throw_errno("send our ports");
    return sockets;
}

}  // namespace nupa::programs
