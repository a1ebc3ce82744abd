// SPDX-License-Identifier: BSD-3-Clause
// Sockets of every kind in every state, made, connected, shut and closed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

constexpr int kAcceptMs = 300;
constexpr int kMptcp = 262;
constexpr uint16_t kNobodysPort = 9;

struct Address {
    sockaddr_storage storage{};
    socklen_t bytes = 0;
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address address_of(const std::string& text, uint16_t port) {
    Address a;
    sockaddr_in six4{};
    sockaddr_in6 six{};
    if (inet_pton(AF_INET, text.c_str(), &six4.sin_addr) == 1) {
        six4.sin_family = AF_INET, six4.sin_port = htons(port);
        std::memcpy(&a.storage, &six4, a.bytes = sizeof six4);
    } else {
        (void)inet_pton(AF_INET6, text.c_str(), &six.sin6_addr);
        six.sin6_family = AF_INET6, six.sin6_port = htons(port);
        std::memcpy(&a.storage, &six, a.bytes = sizeof six);
    }
    return a;
}

const char* any_address(Player& p) {
    static constexpr const char* kAddresses[] = {"127.0.0.1", "::1", "::ffff:127.0.0.1"};
    return p.dice.one_in(2) ? p.world.o.local.c_str() : p.dice.of(kAddresses);
}

int stream(Player& p, const char* address, int protocol = 0) {
    const int family = std::strchr(address, ':') ? AF_INET6 : AF_INET;
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | (p.dice.one_in(4) ? 0 : SOCK_CLOEXEC),
                  protocol);
}

int op_pair(Player& p) {
    const char* address = any_address(p);
    const auto pair = connected_pair(address);
    if (!pair)
        return errno;
    p.note(pair->first, pair->second);
    keep_socket(p, pair->first);
    keep_socket(p, pair->second);
    return 0;
}

int op_peer(Player& p) {
    if (!p.world.o.port)
        return kNothing;
    const int fd = connected_to(p.world.o.peer, p.world.o.port);
    if (fd < 0)
        return errno;
    keep_socket(p, fd);
    return 0;
}

int op_listen(Player& p) {
    const char* address = any_address(p);
    const int fd = stream(p, address, p.dice.one_in(8) ? kMptcp : 0);
    if (fd < 0)
        return errno;
    Address at = address_of(address, 0);
    const int error = result(bind(fd, at.get(), at.bytes) || listen(fd, 4) ? -1 : 0);
    keep_socket(p, fd);
    return error;
}

// Not TCP, or not connected.
int op_other(Player& p) {
    int ends[2] = {-1, -1};
    switch (p.dice.below(10)) {
        case 0:
            ends[0] = stream(p, any_address(p));
            break;
        case 1:
            ends[0] = stream(p, any_address(p), kMptcp);
            break;
        case 2:
            ends[0] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
            break;
        case 3:
            (void)!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends);
            break;
        case 4:
            (void)!pipe2(ends, O_NONBLOCK | O_CLOEXEC);
            break;
        case 5:
            ends[0] =
                socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, static_cast<int>(p.dice.below(22)));
            break;
        case 6:
            ends[0] = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
            break;
        case 7:
            ends[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
            break;
        case 8:
            ends[0] = epoll_create1(EPOLL_CLOEXEC);
            break;
        default:
            ends[0] = socket(static_cast<int>(p.dice.below(46)),
                             static_cast<int>(p.dice.below(11)) | SOCK_NONBLOCK,
                             static_cast<int>(p.dice.below(20)));
    }
    if (ends[0] < 0)
        return errno;
    keep_socket(p, ends[0]);
    if (ends[1] >= 0)
        keep_socket(p, ends[1]);
    return 0;
}

int op_connect(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    sockaddr nowhere{};
    nowhere.sa_family = AF_UNSPEC;
    p.note(*fd);
    if (p.dice.one_in(2))
        return result(connect(*fd, &nowhere, sizeof nowhere));
    Address to = address_of(any_address(p),
                            p.dice.one_in(2) && p.world.o.port ? p.world.o.port : kNobodysPort);
    return result(connect(*fd, to.get(), to.bytes));
}

int op_accept(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    const int got = accept4(*fd, nullptr, nullptr, SOCK_NONBLOCK);
    if (got < 0)
        return errno;
    keep_socket(p, got);
    return 0;
}

int op_shutdown(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    p.note(*fd);
    return result(shutdown(*fd, static_cast<int>(p.dice.below(3))));
}

int op_close(Player& p) {
    const auto old = p.take(p.world.sockets);
    if (!old)
        return kNothing;
    p.note(*old);
    if (p.dice.one_in(3)) {
        const linger how{p.dice.one_in(4) ? 0 : 1, static_cast<int>(p.dice.below(2))};
        setsockopt(*old, SOL_SOCKET, SO_LINGER, &how, sizeof how);
    }
    return result(close(*old));
}

int op_duplicate(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    const int got = fd ? dup(*fd) : -1;
    if (got < 0)
        return fd ? errno : kNothing;
    keep_socket(p, got);
    return 0;
}

int op_names(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    sockaddr_storage storage{};
    socklen_t bytes = p.dice.below(sizeof storage);
    auto* at = reinterpret_cast<sockaddr*>(&storage);
    return result(p.dice.one_in(2) ? getsockname(*fd, at, &bytes) : getpeername(*fd, at, &bytes));
}

constexpr Op kOps[] = {
    {"socket_pair", 8, op_pair},         {"socket_to_peer", 3, op_peer},
    {"socket_listen", 2, op_listen},     {"socket_other", 3, op_other},
    {"socket_connect", 5, op_connect},   {"socket_accept", 2, op_accept},
    {"socket_shutdown", 3, op_shutdown}, {"socket_close", 8, op_close},
    {"socket_dup", 2, op_duplicate},     {"socket_names", 1, op_names},
};

}  // namespace

void keep_socket(Player& p, int fd) {
    if (const auto old = p.world.sockets.put(p.dice, fd))
        close(*old);
}

int set_ulp(int fd, const char* name) noexcept {
    constexpr int kTcpUlp = 31;
    return result(
        setsockopt(fd, SOL_TCP, kTcpUlp, name, static_cast<socklen_t>(std::strlen(name))));
}

int connected_to(const std::string& address, uint16_t port) noexcept {
    Address to = address_of(address, port);
    tcpqp::Fd fd(socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd)
        return -1;
    if (connect(fd.get(), to.get(), to.bytes) && errno == EINPROGRESS) {
        pollfd ready{fd.get(), POLLOUT, 0};
        (void)poll(&ready, 1, kAcceptMs);
    }
    return fd.release();  // if it is late, in SYN_SENT
}

std::optional<std::pair<int, int>> connected_pair(const std::string& address) {
    Address at = address_of(address, 0);
    tcpqp::Fd listener(socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener || bind(listener.get(), at.get(), at.bytes) || listen(listener.get(), 1) ||
        getsockname(listener.get(), at.get(), &at.bytes))
        return std::nullopt;
    tcpqp::Fd first(socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!first || (connect(first.get(), at.get(), at.bytes) && errno != EINPROGRESS))
        return std::nullopt;
    pollfd ready{listener.get(), POLLIN, 0};
    (void)poll(&ready, 1, kAcceptMs);
    tcpqp::Fd second(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!second)
        return std::nullopt;
    return std::pair{first.release(), second.release()};
}

std::span<const Op> socket_ops() { return kOps; }

}  // namespace nupa::fuzz
