// SPDX-License-Identifier: BSD-3-Clause
// What one does with a connected socket, though a queue pair may have it.
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

constexpr size_t kBytesMax = 256 << 10;
constexpr int kWaitMs = 2;

uint8_t* memory(Player& p) { return p.world.memory.slot(p.dice.below(p.world.memory.slots())); }
size_t length(Player& p) { return p.dice.below(p.dice.one_in(8) ? kBytesMax : 2000); }

int op_send(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    static constexpr int kFlags[] = {MSG_OOB,      MSG_MORE,      MSG_ZEROCOPY, MSG_EOR,
                                     MSG_FASTOPEN, MSG_DONTROUTE, MSG_CONFIRM};
    int flags = MSG_NOSIGNAL | (p.dice.one_in(16) ? 0 : MSG_DONTWAIT);
    if (p.dice.one_in(2))
        flags |= p.dice.of(kFlags);
    p.note(*fd, flags);
    return result(send(*fd, memory(p), length(p), flags));
}

int op_sendmsg(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    iovec parts[3];
    for (iovec& part : parts)
        part = {memory(p), length(p) / 4};
    alignas(cmsghdr) std::array<uint8_t, 64> control{};
    msghdr m{};
    m.msg_iov = parts, m.msg_iovlen = 1 + p.dice.below(3);
    if (p.dice.one_in(2)) {
        m.msg_control = control.data();
        m.msg_controllen = CMSG_SPACE(sizeof(uint32_t));
        cmsghdr* c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = p.dice.one_in(4) ? static_cast<int>(p.dice.below(50)) : SOL_SOCKET;
        c->cmsg_type =
            p.dice.one_in(4) ? static_cast<int>(p.dice.below(80)) : 37;  // SO_TIMESTAMPING_OLD
        c->cmsg_len = CMSG_LEN(sizeof(uint32_t));
        const uint32_t flags = p.dice.flags(18);
        std::memcpy(CMSG_DATA(c), &flags, sizeof flags);
    }
    return result(
        sendmsg(*fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT | (p.dice.one_in(4) ? MSG_ZEROCOPY : 0)));
}

int op_recv(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    static constexpr int kFlags[] = {MSG_PEEK,    MSG_OOB,      MSG_TRUNC,
                                     MSG_WAITALL, MSG_ERRQUEUE, MSG_CMSG_CLOEXEC};
    int flags = p.dice.one_in(16) ? 0 : MSG_DONTWAIT;
    if (p.dice.one_in(2))
        flags |= p.dice.of(kFlags);
    p.note(*fd, flags);
    return result(recv(*fd, memory(p), length(p), flags));
}

// Timestamps and zero-copy notifications.
int op_error_queue(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    alignas(cmsghdr) std::array<uint8_t, 256> control{};
    std::array<uint8_t, 64> data{};
    iovec part{data.data(), data.size()};
    msghdr m{};
    m.msg_iov = &part, m.msg_iovlen = 1;
    m.msg_control = control.data(),
    m.msg_controllen = p.dice.one_in(4) ? p.dice.below(64) : control.size();
    return result(recvmsg(*fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT));
}

int op_splice(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    const auto to = p.pick(p.world.sockets);
    int pipe[2];
    if (!fd || !to)
        return kNothing;
    if (pipe2(pipe, O_NONBLOCK | O_CLOEXEC))
        return errno;
    const tcpqp::Fd out(pipe[0]), in(pipe[1]);
    constexpr unsigned kFlags = SPLICE_F_NONBLOCK | SPLICE_F_MOVE;
    int error = 0;
    if (p.dice.one_in(2)) {
        error = result(splice(*fd, nullptr, in.get(), nullptr, length(p), kFlags));
        (void)!splice(out.get(), nullptr, *to, nullptr, kBytesMax, kFlags);
    } else {
        (void)!write(in.get(), memory(p), 4000);
        error = result(splice(out.get(), nullptr, *to, nullptr, length(p),
                              kFlags | (p.dice.one_in(2) ? SPLICE_F_MORE : 0)));
    }
    return error;
}

int op_sendfile(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    static const int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    off_t from = p.dice.below(100000);
    return result(sendfile(*fd, self, &from, length(p)));
}

int op_poll(Player& p) {
    const auto a = p.pick(p.world.sockets);
    const auto b = p.pick(p.world.sockets);
    if (!a || !b)
        return kNothing;
    pollfd ready[] = {{*a, static_cast<short>(p.dice.wild()), 0},
                      {*b, POLLIN | POLLOUT | POLLRDHUP, 0}};
    return result(poll(ready, 2, p.dice.one_in(4) ? kWaitMs : 0));
}

int op_epoll(Player& p) {
    static const int events = epoll_create1(EPOLL_CLOEXEC);
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    epoll_event wanted{p.dice.flags(31) | (p.dice.one_in(2) ? EPOLLET : 0u), {}};
    const uint32_t what = p.dice.below(4);
    if (what == 3) {
        epoll_event got[4];
        return result(epoll_wait(events, got, 4, p.dice.one_in(4) ? kWaitMs : 0));
    }
    return result(epoll_ctl(events, static_cast<int>(1 + what), *fd, &wanted));
}

int op_ioctl(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    static constexpr unsigned long kRequests[] = {FIONREAD,   SIOCOUTQ, SIOCOUTQNSD,
                                                  SIOCATMARK, FIONBIO,  FIOASYNC,
                                                  SIOCSPGRP,  FIOCLEX,  SIOCGSTAMP_OLD};
    int value = static_cast<int>(p.dice.below(2));
    const unsigned long request = p.dice.of(kRequests);
    if (request == SIOCSPGRP)
        value = getpid();
    return result(ioctl(*fd, request, &value));
}

int op_flags(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    const int flags = (p.dice.one_in(16) ? 0 : O_NONBLOCK) | (p.dice.one_in(8) ? O_ASYNC : 0);
    return result(fcntl(*fd, F_SETFL, flags));
}

constexpr Op kOps[] = {
    {"data_send", 6, op_send},     {"data_sendmsg", 4, op_sendmsg},
    {"data_recv", 8, op_recv},     {"data_error_queue", 5, op_error_queue},
    {"data_splice", 2, op_splice}, {"data_sendfile", 1, op_sendfile},
    {"data_poll", 3, op_poll},     {"data_epoll", 3, op_epoll},
    {"data_ioctl", 2, op_ioctl},   {"data_flags", 1, op_flags},
};

}  // namespace

std::span<const Op> data_ops() { return kOps; }

}  // namespace nupa::fuzz
