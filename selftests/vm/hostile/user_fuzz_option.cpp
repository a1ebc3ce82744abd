// SPDX-License-Identifier: BSD-3-Clause
// setsockopt() and getsockopt() on whatever descriptor is there: every number of the levels that
// TCP passes through, and with right arguments those that touch what a queue pair replaces in a
// socket.
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

constexpr uint32_t kBufferMaxBytes = 4 << 20;
constexpr int kSocketOptions = 84, kTcpOptions = 48, kIpOptions = 55, kIpv6Options = 80;
constexpr int kIpTables = 64;  // to 68: root could change what passes at all

int integer(int fd, int level, int name, uint32_t value) {
    return result(setsockopt(fd, level, name, &value, sizeof value));
}

int op_ulp(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    static constexpr const char* kNames[] = {"tcp_qp", "tcp_qp",   "tcp_qp", "tls",
                                             "mptcp",  "espintcp", "",       "tcp_qpx"};
    if (!fd)
        return kNothing;
    p.note(*fd);
    // again and again: what it is to meet in another thread is short
    int error = 0;
    for (uint32_t i = 0, n = p.dice.one_in(4) ? 200 : 1; i < n; i++)
        error = set_ulp(*fd, p.dice.of(kNames));
    return error;
}

int op_timestamping(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    uint32_t flags = p.dice.one_in(4) ? p.dice.flags(18)
                                      : SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID |
                                            (p.dice.below(2) ? SOF_TIMESTAMPING_TX_SOFTWARE : 0) |
                                            (p.dice.below(2) ? SOF_TIMESTAMPING_TX_SCHED : 0) |
                                            (p.dice.below(2) ? SOF_TIMESTAMPING_TX_ACK : 0) |
                                            (p.dice.below(2) ? SOF_TIMESTAMPING_OPT_TSONLY : 0);
    p.note(*fd, flags);
    return integer(*fd, SOL_SOCKET, p.dice.below(2) ? 37 : 65, flags);  // SO_TIMESTAMPING_OLD, _NEW
}

int op_linger(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    const linger how{static_cast<int>(p.dice.below(2)), static_cast<int>(p.dice.below(3))};
    return result(setsockopt(*fd, SOL_SOCKET, SO_LINGER, &how, sizeof how));
}

// The few whose right arguments chance would hardly find.
int op_meant(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    const uint32_t which = p.dice.below(16), on = p.dice.below(2);
    p.note(*fd, which, on);
    switch (which) {
        case 0:
            return integer(*fd, SOL_SOCKET, SO_ZEROCOPY, on);
        case 1:
            return integer(*fd, SOL_TCP, TCP_REPAIR, on ? 1 : p.dice.below(2) ? 0 : UINT32_MAX);
        case 2:
            return integer(*fd, SOL_TCP, TCP_REPAIR_QUEUE, p.dice.below(3));
        case 3:
            return integer(*fd, SOL_TCP, TCP_USER_TIMEOUT, p.dice.below(2000));
        case 4:
            return integer(*fd, SOL_TCP, TCP_CORK, on);
        case 5:
            return integer(*fd, SOL_TCP, TCP_NODELAY, on);
        case 6:
            return integer(*fd, SOL_TCP, TCP_MAXSEG, 88 + p.dice.below(1500));
        case 7:
            return integer(*fd, SOL_SOCKET, p.dice.below(2) ? SO_SNDBUF : SO_RCVBUF,
                           p.dice.below(kBufferMaxBytes));
        case 8:
            return integer(*fd, SOL_SOCKET, SO_RCVLOWAT, p.dice.below(100000));
        case 9:
            return integer(*fd, SOL_TCP, TCP_WINDOW_CLAMP, p.dice.below(100000));
        case 10:
            return integer(*fd, SOL_TCP, TCP_NOTSENT_LOWAT, p.dice.below(100000));
        case 11:
            return integer(*fd, SOL_IPV6, 1, AF_INET);  // IPV6_ADDRFORM
        case 12:
            return integer(*fd, SOL_SOCKET, SO_KEEPALIVE, on);
        case 13: {
            static constexpr const char* kNames[] = {"cubic", "reno", "bbr", "dctcp", "none"};
            const char* name = p.dice.of(kNames);
            return result(setsockopt(*fd, SOL_TCP, TCP_CONGESTION, name,
                                     static_cast<socklen_t>(std::strlen(name))));
        }
        case 14: {
            sock_filter all[] = {{BPF_RET | BPF_K, 0, 0, p.dice.below(2) ? 0xffffu : 0}};
            const sock_fprog program{1, all};
            return result(setsockopt(*fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
        }
        default: {
            tcp_md5sig signature{};
            socklen_t bytes = sizeof signature.tcpm_addr;
            auto* at = reinterpret_cast<sockaddr*>(&signature.tcpm_addr);
            if (getpeername(*fd, at, &bytes))
                return errno;
            signature.tcpm_keylen = static_cast<uint16_t>(p.dice.below(81));
            return result(setsockopt(*fd, SOL_TCP, TCP_MD5SIG, &signature, sizeof signature));
        }
    }
}

struct Number {
    int level, name;
};

Number number(Player& p) {
    switch (p.dice.below(8)) {
        case 0:
        case 1:
        case 2:
            return {SOL_SOCKET, static_cast<int>(p.dice.below(kSocketOptions))};
        case 3:
        case 4:
        case 5:
            return {SOL_TCP, static_cast<int>(p.dice.below(kTcpOptions))};
        case 6:
            return {SOL_IP, static_cast<int>(p.dice.below(kIpOptions))};
        default: {
            const int name = static_cast<int>(p.dice.below(kIpv6Options));
            return {SOL_IPV6, name >= kIpTables && name <= kIpTables + 4 ? 0 : name};
        }
    }
}

int op_set(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    const Number n = number(p);
    alignas(8) std::array<uint32_t, 64> value{};
    for (uint32_t& word : value)
        word = p.dice.below(p.dice.one_in(4) ? kBufferMaxBytes : 4);
    const bool limited = n.level == SOL_SOCKET;  // some are of memory, and root may exceed limits
    if (!limited && p.dice.one_in(8))
        value[0] = static_cast<uint32_t>(p.dice.wild());
    const socklen_t bytes = p.dice.one_in(3) ? p.dice.below(sizeof value + 1) : 4;
    p.note(*fd, n.level << 16 | n.name, value[0]);
    return result(setsockopt(*fd, n.level, n.name, value.data(), bytes));
}

int op_get(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    const Number n = number(p);
    alignas(8) std::array<uint8_t, 512> value{};
    socklen_t bytes = p.dice.one_in(2) ? p.dice.below(sizeof value) : sizeof value;
    p.note(*fd, n.level << 16 | n.name, bytes);
    return result(getsockopt(*fd, n.level, n.name, value.data(), &bytes));
}

constexpr Op kOps[] = {
    {"option_ulp", 6, op_ulp},       {"option_timestamping", 5, op_timestamping},
    {"option_linger", 3, op_linger}, {"option_meant", 8, op_meant},
    {"option_set", 8, op_set},       {"option_get", 5, op_get},
};

}  // namespace

std::span<const Op> option_ops() { return kOps; }

}  // namespace nupa::fuzz
