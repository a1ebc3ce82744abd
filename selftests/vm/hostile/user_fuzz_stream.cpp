// SPDX-License-Identifier: BSD-3-Clause
// Sockets with ULP tcp_qp_stream: large sends of every kind, other ULPs, listeners that had it.
#include <fcntl.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "user_fuzz_loyal.hpp"
#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

constexpr size_t kWarmBytes = 768 << 10;  // acknowledged: more than a socket needs for pages
constexpr size_t kDrainBytes = 1 << 20;
constexpr uint32_t kWarmTurns = 64;
constexpr int kSolTls = 282, kTlsTx = 1;

uint8_t* slot(Player& p) { return p.world.memory.slot(p.dice.below(p.world.memory.slots())); }

size_t large(Player& p) {
    const size_t most = p.world.memory.slot_bytes();
    return p.dice.one_in(4) ? 1 + p.dice.below(most) : p.dice.one_in(2) ? most : (32 << 10);
}

void drain(int fd) { (void)!recv(fd, nullptr, kDrainBytes, MSG_DONTWAIT | MSG_TRUNC); }

// With pages, both ways, unless memory is short or something else has the sockets already.
int op_pair(Player& p) {
    const auto pair = connected_pair(p.dice.one_in(2) ? p.world.o.local : "::1");
    if (!pair)
        return errno;
    const int error = set_ulp(pair->first, kStreamUlp);
    (void)set_ulp(pair->second, kStreamUlp);
    const uint8_t* from = slot(p);
    for (size_t sent = 0, turn = 0; sent < kWarmBytes && turn < kWarmTurns; turn++) {
        const ssize_t n = send(pair->first, from, 64 << 10, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? static_cast<size_t>(n) : 0;
        drain(pair->second);
    }
    keep_socket(p, pair->first);
    keep_socket(p, pair->second);
    return error;
}

int op_ulp(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    p.note(*fd);
    return set_ulp(*fd, kStreamUlp);
}

int op_send(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    static constexpr int kFlags[] = {0, 0, MSG_OOB, MSG_MORE, MSG_ZEROCOPY, MSG_EOR, MSG_FASTOPEN};
    const int flags = MSG_NOSIGNAL | (p.dice.one_in(8) ? 0 : MSG_DONTWAIT) | p.dice.of(kFlags);
    p.note(*fd, flags);
    return result(send(*fd, slot(p), large(p), flags));
}

int op_sendmsg(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    iovec parts[4];
    for (iovec& part : parts)
        part = {p.dice.one_in(16) ? nullptr : slot(p), large(p)};
    msghdr m{};
    m.msg_iov = parts, m.msg_iovlen = 1 + p.dice.below(4);
    return result(sendmsg(*fd, &m, MSG_NOSIGNAL | (p.dice.one_in(8) ? 0 : MSG_DONTWAIT)));
}

int op_sendfile(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    static const int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    off_t from = p.dice.below(100000);
    return result(sendfile(*fd, self, &from, large(p)));
}

int op_drain(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    drain(*fd);
    return 0;
}

// From one socket to another: pages of the first that the second's packets hold, or a pipe.
int op_splice(Player& p) {
    const auto from = p.pick(p.world.sockets);
    const auto to = p.pick(p.world.sockets);
    if (!from || !to)
        return kNothing;
    static const std::array<int, 2> kept = [] {
        std::array<int, 2> ends{};
        (void)!pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC);
        return ends;
    }();
    constexpr unsigned kHow = SPLICE_F_NONBLOCK | SPLICE_F_MOVE;
    const int error = result(splice(*from, nullptr, kept[1], nullptr, large(p), kHow));
    if (!p.dice.one_in(8))
        (void)!splice(kept[0], nullptr, *to, nullptr, large(p), kHow);
    return error;
}

int op_limit(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    const timeval limit{0, static_cast<suseconds_t>(p.dice.below(20000))};
    return result(setsockopt(*fd, SOL_SOCKET, p.dice.below(2) ? SO_SNDTIMEO : SO_RCVTIMEO, &limit,
                             sizeof limit));
}

int op_tls(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    (void)set_ulp(*fd, "tls");
    tls12_crypto_info_aes_gcm_128 keys{};
    keys.info.version = TLS_1_2_VERSION;
    keys.info.cipher_type = TLS_CIPHER_AES_GCM_128;
    return result(setsockopt(*fd, kSolTls, kTlsTx, &keys, sizeof keys));
}

// Whatever state it is in; who connects gets a child of it.
int op_listen(Player& p) {
    const auto fd = p.pick(p.world.sockets);
    if (!fd)
        return kNothing;
    if (p.dice.one_in(2)) {
        const sockaddr nowhere{AF_UNSPEC, {}};
        (void)connect(*fd, &nowhere, sizeof nowhere);
    }
    if (p.dice.one_in(2))
        (void)set_ulp(*fd, p.dice.one_in(2) ? kStreamUlp : "tcp_qpx");
    sockaddr_storage at{};
    socklen_t bytes = sizeof at;
    const int error = result(listen(*fd, 4));
    if (error || getsockname(*fd, reinterpret_cast<sockaddr*>(&at), &bytes))
        return error;
    const tcpqp::Fd other(socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    (void)connect(other.get(), reinterpret_cast<sockaddr*>(&at), bytes);
    const int child = accept4(*fd, nullptr, nullptr, SOCK_NONBLOCK);
    if (child >= 0)
        keep_socket(p, child);
    return error;
}

constexpr Op kOps[] = {
    {"stream_pair", 4, op_pair},       {"stream_send", 10, op_send},
    {"stream_sendmsg", 4, op_sendmsg}, {"stream_sendfile", 2, op_sendfile},
    {"stream_drain", 12, op_drain},    {"stream_splice", 3, op_splice},
    {"stream_limit", 2, op_limit},     {"stream_tls", 1, op_tls},
    {"stream_listen", 3, op_listen},   {"stream_ulp", 2, op_ulp},
};

}  // namespace

std::span<const Op> stream_ops() { return kOps; }

}  // namespace nupa::fuzz
