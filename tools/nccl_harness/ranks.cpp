// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_harness/ranks.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "nccl_harness/plugin.hpp"

namespace tcpqp::harness {
namespace {

constexpr size_t kMessageMaxBytes = 1 << 24;
constexpr auto kJoinLimit = std::chrono::seconds(60);
constexpr auto kJoinRetry = std::chrono::milliseconds(50);

void write_all(int fd, const void* data, size_t bytes) {
    for (auto* at = static_cast<const char*>(data); bytes != 0;) {
        const ssize_t n = ::send(fd, at, bytes, MSG_NOSIGNAL);
        check(n > 0, "another rank has gone");
        at += n;
        bytes -= static_cast<size_t>(n);
    }
}

void read_all(int fd, void* data, size_t bytes) {
    for (auto* at = static_cast<char*>(data); bytes != 0;) {
        const ssize_t n = ::recv(fd, at, bytes, 0);
        check(n > 0, "another rank has gone");
        at += n;
        bytes -= static_cast<size_t>(n);
    }
}

void write_bytes(int fd, std::span<const std::byte> data) {
    const uint32_t length = static_cast<uint32_t>(data.size());
    Bytes both(sizeof(length) + data.size());  // one segment
    std::memcpy(both.data(), &length, sizeof(length));
    std::copy(data.begin(), data.end(), both.begin() + sizeof(length));
    write_all(fd, both.data(), both.size());
}

void send_at_once(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

Bytes read_bytes(int fd) {
    uint32_t length = 0;
    read_all(fd, &length, sizeof(length));
    check(length <= kMessageMaxBytes, "another rank says nonsense");
    Bytes data(length);
    read_all(fd, data.data(), data.size());
    return data;
}

}  // namespace

Fd listen_on(uint16_t& port) {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    socklen_t length = sizeof(at);
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    auto* address = reinterpret_cast<sockaddr*>(&at);
    if (!fd || ::bind(fd.get(), address, length) != 0 || ::listen(fd.get(), 64) != 0 ||
        ::getsockname(fd.get(), address, &length) != 0)
        throw_errno("bootstrap");
    port = ntohs(at.sin_port);
    return fd;
}

Ranks Ranks::lead(Fd listener, int size) {
    Ranks r(0, size);
    r.peers_.resize(static_cast<size_t>(size));
    for (int i = 1; i < size; i++) {
        Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!fd)
            throw_errno("bootstrap");
        send_at_once(fd.get());
        uint32_t rank = 0;
        read_all(fd.get(), &rank, sizeof(rank));
        check(rank > 0 && rank < static_cast<uint32_t>(size) && !r.peers_[rank],
              "two ranks have one number");
        r.peers_[rank] = std::move(fd);
    }
    return r;
}

Ranks Ranks::join(const std::string& address, uint16_t port, int rank, int size) {
    Ranks r(rank, size);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    check(::inet_pton(AF_INET, address.c_str(), &to.sin_addr) == 1, address + " is no address");
    const auto until = std::chrono::steady_clock::now() + kJoinLimit;
    for (;;) {
        Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (fd && ::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
            send_at_once(fd.get());
            r.peers_.push_back(std::move(fd));
            break;
        }
        check(std::chrono::steady_clock::now() < until, "rank 0 cannot be reached");
        std::this_thread::sleep_for(kJoinRetry);  // it may not listen yet
    }
    const auto number = static_cast<uint32_t>(rank);
    write_all(r.peers_[0].get(), &number, sizeof(number));
    return r;
}

std::vector<Bytes> Ranks::all_gather(std::span<const std::byte> ours) {
    std::vector<Bytes> all(static_cast<size_t>(size_));
    if (rank_ != 0) {
        write_bytes(peers_[0].get(), ours);
        for (Bytes& bytes : all)
            bytes = read_bytes(peers_[0].get());
        return all;
    }
    all[0].assign(ours.begin(), ours.end());
    for (size_t i = 1; i < all.size(); i++)
        all[i] = read_bytes(peers_[i].get());
    for (size_t i = 1; i < all.size(); i++)
        for (const Bytes& bytes : all)
            write_bytes(peers_[i].get(), bytes);
    return all;
}

}  // namespace tcpqp::harness
