// SPDX-License-Identifier: BSD-3-Clause
#include "server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "letter.hpp"
#include "shared.h"
#include "verbs/route.hpp"

namespace tcpqp::bpf {
namespace {

constexpr std::ptrdiff_t kSlotsPerUser = TCPQP_BPF_SLOTS_MAX / 4;
constexpr int kBacklog = 64;
constexpr timeval kClientLimit{1, 0};  // a client that does not send its request

// The request's socket, or nothing: whatever else it is.
Fd receive_socket(int client) noexcept {
    tcpqp_bpf_request request{};
    Letter letter(&request, sizeof(request));
    const ssize_t n = ::recvmsg(client, &letter.message, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return {};
    Fd socket = letter.take();
    if (n != sizeof(request) || request.abi != TCPQP_BPF_ABI || request.reserved != 0)
        return {};
    return socket;
}

void send_reply(int client, int error, std::span<const int> fds) noexcept {
    tcpqp_bpf_reply reply{TCPQP_BPF_ABI, error};
    Letter letter(&reply, sizeof(reply));
    letter.put(fds);
    // a client that left needs none
    ::sendmsg(client, &letter.message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// What the program did for a connection that is over.
void print_counters(int map) {
    void* at = ::mmap(nullptr, sizeof(tcpqp_bpf_slot), PROT_READ, MAP_SHARED, map, 0);
    if (at == MAP_FAILED)
        return;
    const auto& s = *static_cast<const tcpqp_bpf_slot*>(at);
    std::printf("tcpqp-bpf: closed: written %u rewritten %u bare %u invalid %u lost %u\n",
                s.tx_written, s.tx_rewritten, s.tx_bare, s.rx_invalid, s.rx_lost);
    std::fflush(stdout);
    ::munmap(at, sizeof(tcpqp_bpf_slot));
}

int check_tcp(int socket) noexcept {
    int protocol = 0;
    socklen_t bytes = sizeof(protocol);
    if (::getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) != 0)
        return -errno;
    if (protocol != IPPROTO_TCP)
        return -EPROTOTYPE;
    tcp_info info{};
    bytes = sizeof(info);
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return -errno;
    return info.tcpi_state == TCP_ESTABLISHED || info.tcpi_state == TCP_CLOSE_WAIT ? 0 : -ENOTCONN;
}

}  // namespace

Server::Server(Program& program, const std::string& path, mode_t mode, bool verbose)
    : program_(program),
      egress_(program.unsack_fd()),
      path_(path),
      verbose_(verbose),
      connections_(TCPQP_BPF_SLOTS_MAX) {
    listener_ = listen_for_letters(path, mode, kBacklog);
}

Server::~Server() { ::unlink(path_.c_str()); }

uint32_t Server::free_slot(uid_t uid) const {
    if (std::count_if(connections_.begin(), connections_.end(), [uid](const Connection& c) {
            return c.map && c.uid == uid;
        }) >= kSlotsPerUser)
        throw_errno("connections of this user", EDQUOT);
    const auto at = std::find_if(connections_.begin(), connections_.end(),
                                 [](const Connection& c) { return !c.map; });
    if (at == connections_.end())
        throw_errno("connections", ENOSPC);
    return static_cast<uint32_t>(at - connections_.begin());
}

Server::Admitted Server::admit(int socket, uid_t uid) {
    if (const int error = check_tcp(socket); error != 0)
        throw_errno("not a connected TCP socket", -error);
    std::string ifname;
    if (const int error = route_interface(socket, ifname); error != 0)
        throw_errno("route", error);
    if (const int error = egress_.cover(ifname); error != 0)
        throw_errno("interface " + ifname, -error);
    const uint32_t slot = free_slot(uid);
    Program::Slot made = program_.admit(socket, slot);
    connections_[slot] = {std::move(made.map), uid};
    return {connections_[slot].map.get(), std::move(made.news)};
}

void Server::serve(int client) noexcept {
    ucred who{};
    socklen_t bytes = sizeof(who);
    ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &kClientLimit, sizeof(kClientLimit));
    const Fd socket = receive_socket(client);
    if (!socket || ::getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0)
        return send_reply(client, -EPROTO, {});
    try {
        collect();
        const Admitted admitted = admit(socket.get(), who.uid);
        send_reply(client, 0, std::array{admitted.map, admitted.news.get()});
    } catch (const std::system_error& e) {
        std::fprintf(stderr, "tcpqp-bpf: refused uid %u pid %d: %s\n", who.uid, who.pid, e.what());
        send_reply(client, -e.code().value(), {});
    } catch (const std::bad_alloc&) {
        send_reply(client, -ENOMEM, {});
    }
}

void Server::collect() {
    for (const uint32_t slot : program_.closed()) {
        if (slot >= connections_.size() || !connections_[slot].map)
            continue;
        if (verbose_)
            print_counters(connections_[slot].map.get());
        program_.forget(slot);
        connections_[slot].map.reset();
    }
}

void Server::run(int stop) {
    std::array<pollfd, 3> events{
        {{listener_.get(), POLLIN, 0}, {stop, POLLIN, 0}, {program_.closed_fd(), POLLIN, 0}}};
    for (;;) {
        if (::poll(events.data(), events.size(), -1) < 0 && errno != EINTR)
            throw_errno("poll");
        collect();
        if (events[1].revents != 0)
            return;
        const Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (client)
            serve(client.get());
    }
}

}  // namespace tcpqp::bpf
