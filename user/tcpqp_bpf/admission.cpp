// SPDX-License-Identifier: BSD-3-Clause
#include "admission.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/route.hpp"

namespace tcpqp::bpf {
namespace {

// 0 where the kernel has no such number.
uint64_t namespace_of(int socket) noexcept {
    uint64_t cookie = 0;
    socklen_t bytes = sizeof(cookie);
    return ::getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &bytes) == 0 ? cookie : 0;
}

uint64_t own_namespace() {
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket)
        throw_errno("socket");
    return namespace_of(socket.get());
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

Admission::Admission(Program& program, uint32_t egress_handle, bool verbose)
    : program_(program),
      verbose_(verbose),
      namespace_(own_namespace()),
      slots_(TCPQP_BPF_SLOTS_MAX),
      egress_(std::make_unique<Egress>(program.unsack_fd(), egress_handle)) {}

// The interface is looked for among ours.
void Admission::cover(int socket) {
    if (namespace_of(socket) != namespace_)
        throw_errno("the socket is in another network namespace", EXDEV);
    std::string ifname;
    if (const int error = route_interface(socket, ifname); error != 0)
        throw_errno("route", error);
    const std::lock_guard guard(egress_lock_);
    const int error = egress_ ? egress_->cover(ifname) : -ESHUTDOWN;
    if (error != 0)
        throw_errno("interface " + ifname, -error);
}

Admission::Admitted Admission::admit(int socket, uid_t uid) {
    if (const int error = check_tcp(socket); error != 0)
        throw_errno("not a connected TCP socket", -error);
    cover(socket);
    const Slots::Place place = take(uid);
    try {
        return {place, program_.admit(socket, place)};
    } catch (...) {
        slots_.release(place, 0);
        throw;
    }
}

Slots::Place Admission::take(uid_t uid) {
    try {
        return slots_.take(uid);
    } catch (const std::system_error&) {
        slots_.count_again([this] { return program_.living(); });
    }
    return slots_.take(uid);
}

void Admission::finish(Admitted& admitted) {
    if (slots_.hold(admitted.place, admitted.slot.map))
        return;
    const Ended ended = over(admitted.place, admitted.slot.map);
    forget({&ended, 1});
}

// Tells what the program did for a connection that is over.
Admission::Ended Admission::over(const Slots::Place& place, const Fd& map) const {
    const Ended ended{place, program_.id_of(map)};
    void* at = verbose_
                   ? ::mmap(nullptr, sizeof(tcpqp_bpf_slot), PROT_READ, MAP_SHARED, map.get(), 0)
                   : MAP_FAILED;
    if (at == MAP_FAILED)
        return ended;
    const auto& s = *static_cast<const tcpqp_bpf_slot*>(at);
    std::printf("tcpqp-bpf: closed: written %u rewritten %u bare %u invalid %u lost %u\n",
                s.tx_written, s.tx_rewritten, s.tx_bare, s.rx_invalid, s.rx_lost);
    std::fflush(stdout);
    ::munmap(at, sizeof(tcpqp_bpf_slot));
    return ended;
}

void Admission::forget(std::span<const Ended> ended) {
    std::vector<Slots::Place> places;
    for (const Ended& e : ended)
        places.push_back(e.place);
    program_.forget(places);
    for (const Ended& e : ended)
        slots_.release(e.place, e.map);
}

void Admission::collect(int stop) {
    std::array<pollfd, 2> events{{{program_.closed_fd(), POLLIN, 0}, {stop, POLLIN, 0}}};
    while (events[1].revents == 0) {
        if (::poll(events.data(), events.size(), -1) < 0 && errno != EINTR)
            throw_errno("poll");
        std::vector<Ended> ended;
        for (const Slots::Place& place : program_.closed())
            if (const Fd map = slots_.end(place); map)
                ended.push_back(over(place, map));
        if (!ended.empty())
            forget(ended);
    }
}

void Admission::close() noexcept {
    const std::lock_guard guard(egress_lock_);
    egress_.reset();
}

}  // namespace tcpqp::bpf
