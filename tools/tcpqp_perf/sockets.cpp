// SPDX-License-Identifier: BSD-3-Clause
#include "sockets.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

namespace perf {
namespace {

constexpr size_t kLineMax = 512;
constexpr int kBacklog = 4;

void no_delay(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

Socket::~Socket() {
    if (fd_ >= 0)
        ::close(fd_);
}

void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

Socket listen_on(uint16_t port) {
    Socket s(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 at{};
    at.sin6_family = AF_INET6;
    at.sin6_port = htons(port);
    const int on = 1;
    if (s.get() < 0 || ::setsockopt(s.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        ::bind(s.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0 ||
        ::listen(s.get(), kBacklog) != 0)
        fail("listen");
    return s;
}

Socket accept_from(const Socket& listener) {
    Socket s(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (s.get() < 0)
        fail("accept");
    no_delay(s.get());
    return s;
}

Socket connect_to(const std::string& host, uint16_t port) {
    addrinfo hints{}, *list = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0)
        throw std::system_error(EHOSTUNREACH, std::generic_category(), host);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, &::freeaddrinfo);
    for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
        Socket s(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (s.get() < 0 || ::connect(s.get(), a->ai_addr, a->ai_addrlen) != 0)
            continue;
        no_delay(s.get());
        return s;
    }
    fail("connect");
}

void send_all(const Socket& socket, const void* at, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n =
            ::send(socket.get(), static_cast<const char*>(at) + done, bytes - done, MSG_NOSIGNAL);
        if (n < 0)
            fail("send");
        done += static_cast<size_t>(n);
    }
}

void receive_all(const Socket& socket, void* at, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n =
            ::recv(socket.get(), static_cast<char*>(at) + done, bytes - done, MSG_WAITALL);
        if (n == 0)
            errno = ECONNRESET;
        if (n <= 0)
            fail("recv");
        done += static_cast<size_t>(n);
    }
}

size_t receive_some(const Socket& socket, void* at, size_t bytes) {
    const ssize_t n = ::recv(socket.get(), at, bytes, 0);
    if (n == 0)
        errno = ECONNRESET;
    if (n <= 0)
        fail("recv");
    return static_cast<size_t>(n);
}

void send_line(const Socket& socket, const std::string& line) {
    send_all(socket, (line + "\n").data(), line.size() + 1);
}

std::string receive_line(const Socket& socket) {
    std::string line;
    for (char c = 0; line.size() < kLineMax; line += c) {
        receive_all(socket, &c, 1);
        if (c == '\n')
            return line;
    }
    errno = EPROTO;
    fail("the other end's line");
}

}  // namespace perf
