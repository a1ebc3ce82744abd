// SPDX-License-Identifier: BSD-3-Clause
// Peers that are named by GID and number: address handles and datagrams, connections by number in
// any order of states, and what strangers say to the ports of either.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_user_rxe.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "user_fuzz_command.hpp"

namespace nupa::fuzz {
namespace {

constexpr uint16_t kNumberPort = 791, kDatagramPort = 4793;
constexpr uint32_t kRounds = 3;
enum State : uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr };
// What IBTA wants to be told, of ib_qp_attr_mask.
constexpr uint32_t kInitMask = 0x39, kRtrMask = 0x129181, kRtsMask = 0x12e01, kStateOnly = 1;
constexpr uint32_t kDatagramRtsMask = 0x10001;

using Gid = std::array<uint8_t, 16>;

Gid gid_of(const std::string& address) {
    Gid gid{};
    if (inet_pton(AF_INET6, address.c_str(), gid.data()) == 1)
        return gid;
    gid.fill(0);
    gid[10] = gid[11] = 0xff;
    (void)inet_pton(AF_INET, address.c_str(), &gid[12]);
    return gid;
}

Gid any_gid(Player& p) {
    static constexpr const char* kOthers[] = {
        "127.0.0.1",       "::1",     "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "ff02::1", "::",      "10.78.0.99"};
    if (p.dice.one_in(8))
        return gid_of(p.dice.of(kOthers));
    return gid_of(p.dice.one_in(2) ? p.world.o.local : p.world.o.peer);
}

// Of ib_uverbs_qp_dest and ib_uverbs_ah_attr: their members have the same names.
template <typename Route>
void address(Player& p, Route& to) {
    to.sgid_index = static_cast<uint8_t>(p.dice.one_in(8) ? p.dice.below(20) : 0);
    to.hop_limit = static_cast<uint8_t>(p.dice.one_in(4) ? p.dice.below(256) : 64);
    to.traffic_class = static_cast<uint8_t>(p.dice.one_in(4) ? p.dice.below(256) : 0);
}

int op_handle(Player& p) {
    const auto pd = p.pick(p.world.pds);
    if (!pd)
        return kNothing;
    Answer<ib_uverbs_create_ah_resp, rxe_create_ah_resp> answer;
    ib_uverbs_create_ah body{};
    const Gid to = any_gid(p);
    body.pd_handle = handle_of(p, pd);
    std::memcpy(body.attr.grh.dgid, to.data(), to.size());
    address(p, body.attr.grh);
    body.attr.is_global = !p.dice.one_in(16);
    body.attr.port_num = 1;
    if (const int error = issue(p, pd->fd, IB_USER_VERBS_CMD_CREATE_AH, body, answer))
        return error;
    const auto old =
        p.world.handles.put(p.dice, AddressHandle{pd->fd, answer.word(0), answer.driver().ah_num});
    if (!old)
        return 0;
    return issue(p, old->fd, IB_USER_VERBS_CMD_DESTROY_AH, ib_uverbs_destroy_ah{old->handle});
}

int op_destroy_handle(Player& p) {
    const auto old = p.drop(p.world.handles);
    if (!old)
        return kNothing;
    return issue(p, old->fd, IB_USER_VERBS_CMD_DESTROY_AH, ib_uverbs_destroy_ah{old->handle});
}

// Everything that a state may want to be told is there; @mask says what counts.
int enter(Player& p, const QueuePair& qp, uint8_t state, uint32_t mask, const Gid& to,
          uint32_t number) {
    ib_uverbs_modify_qp body{};
    std::memcpy(body.dest.dgid, to.data(), to.size());
    address(p, body.dest);
    body.dest.is_global = !p.dice.one_in(32);
    body.dest.port_num = 1;
    body.qp_handle = qp.handle;
    body.attr_mask = mask;
    body.qp_state = state;
    body.port_num = 1;
    body.qkey = kQkey;
    body.qp_access_flags = 0xe;
    body.path_mtu = 3;
    body.dest_qp_num = number;
    body.rq_psn = body.sq_psn = p.dice.one_in(16) ? p.dice.below(1 << 24) : 7;
    body.max_rd_atomic = body.max_dest_rd_atomic = static_cast<uint8_t>(p.dice.below(17));
    body.timeout = static_cast<uint8_t>(p.dice.below(15));
    body.retry_cnt = static_cast<uint8_t>(p.dice.below(8));
    p.note(qp.handle, state, number);
    return issue(p, qp.fd, IB_USER_VERBS_CMD_MODIFY_QP, body);
}

uint32_t any_number(Player& p) {
    const auto qp = p.pick(p.world.qps);
    return qp && !p.dice.one_in(8) ? qp->number : p.dice.below(1 << 24);
}

// Any state after any other.
int op_name(Player& p) {
    const auto qp = p.pick(p.world.qps);
    if (!qp)
        return kNothing;
    static constexpr struct {
        uint8_t state;
        uint32_t mask;
    } kSteps[] = {{kReset, kStateOnly}, {kInit, kInitMask}, {kInit, kInitMask}, {kRtr, kRtrMask},
                  {kRtr, kRtrMask},     {kRts, kRtsMask},   {kRts, kRtsMask},   {kErr, kStateOnly},
                  {kSqd, kStateOnly},   {kRts, kStateOnly}};
    const Gid to = any_gid(p);
    const uint32_t number = any_number(p);
    int error = 0;
    for (uint32_t i = 0, n = 1 + p.dice.below(4); i < n; i++) {
        const auto& step = p.dice.of(kSteps);
        error = enter(p, *qp, step.state, step.mask, to, number);
    }
    return error;
}

// Two that name each other (or one itself), with traffic, as programs do it.
int op_pair(Player& p) {
    const auto a = fresh_qp(p);
    const auto b = p.dice.one_in(8) ? a : fresh_qp(p);
    if (!a || !b)
        return kNothing;
    const Gid here = gid_of(p.world.o.local);
    int error = enter(p, *a, kRtr, kRtrMask, here, b->number);
    (void)enter(p, *b, kRtr, kRtrMask, here, a->number);
    (void)post_to(p, *b, RingKind::kReceive);
    error = enter(p, *a, kRts, kRtsMask, here, b->number) | error;
    (void)enter(p, *b, kRts, kRtsMask, here, a->number);
    for (uint32_t i = 0; i < kRounds; i++) {
        (void)post_to(p, *a, RingKind::kSend);
        (void)post_to(p, *b, RingKind::kReceive);
        (void)post_to(p, *b, RingKind::kSend);
    }
    return error;
}

int op_datagram_qp(Player& p) {
    const auto qp = fresh_qp(p, kDatagram);
    if (!qp)
        return kNothing;
    const int error = enter(p, *qp, kRtr, kStateOnly, {}, 0);
    (void)post_to(p, *qp, RingKind::kReceive);
    (void)enter(p, *qp, kRts, kDatagramRtsMask, {}, 0);
    (void)op_handle(p);
    for (uint32_t i = 0; i < kRounds; i++)
        (void)post_to(p, *qp, RingKind::kSend);
    return error;
}

// ---- strangers ----

void put32(uint8_t* at, uint32_t value) {
    value = htonl(value);
    std::memcpy(at, &value, sizeof value);
}

// docs/connections.md, "The hello"; its numbers may be somebody's.
int op_hello(Player& p) {
    std::array<uint8_t, 48> frame{};
    constexpr size_t kBytes = 36;
    std::memcpy(frame.data(), "tcp_qp number  \n", 16);
    frame[17] = 1, frame[19] = 12;
    put32(&frame[24], any_number(p));
    put32(&frame[28], any_number(p));
    put32(&frame[32], p.dice.one_in(2) ? 7 : p.dice.below(1 << 24));
    if (p.dice.one_in(4))
        frame[p.dice.below(kBytes)] ^= 1 << p.dice.below(8);
    const int fd = connected_to(p.dice.one_in(2) ? p.world.o.local : p.world.o.peer, kNumberPort);
    if (fd < 0)
        return errno;
    const size_t bytes = p.dice.one_in(4) ? p.dice.below(frame.size() + 1) : kBytes;
    const int error = result(send(fd, frame.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
    keep_socket(p, fd);
    return error;
}

// docs/ud.md, "The datagram".
int op_datagram(Player& p) {
    std::array<uint8_t, 9000> bytes{};
    const size_t payload = p.dice.below(p.dice.one_in(4) ? bytes.size() - 20 : 200);
    bytes[0] = 1, bytes[1] = static_cast<uint8_t>(0x64 + p.dice.below(2));
    bytes[2] = static_cast<uint8_t>(payload >> 8), bytes[3] = static_cast<uint8_t>(payload);
    put32(&bytes[4], any_number(p) | (p.dice.below(2) << 24));
    put32(&bytes[8], any_number(p));
    put32(&bytes[12], kQkey);
    if (p.dice.one_in(3))
        bytes[p.dice.below(20)] ^= 1 << p.dice.below(8);
    sockaddr_in to{};
    to.sin_family = AF_INET, to.sin_port = htons(kDatagramPort);
    (void)inet_pton(AF_INET, (p.dice.one_in(2) ? p.world.o.local : p.world.o.peer).c_str(),
                    &to.sin_addr);
    const tcpqp::Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const size_t sent = p.dice.one_in(8) ? p.dice.below(payload + 20) : payload + 20;
    return result(sendto(fd.get(), bytes.data(), sent, MSG_DONTWAIT,
                         reinterpret_cast<sockaddr*>(&to), sizeof to));
}

constexpr Op kOps[] = {
    {"path_name", 8, op_name},
    {"path_pair", 6, op_pair},
    {"path_handle", 3, op_handle},
    {"path_destroy_handle", 1, op_destroy_handle},
    {"path_datagram_qp", 5, op_datagram_qp},
    {"path_hello", 4, op_hello},
    {"path_datagram", 4, op_datagram},
};

}  // namespace

std::span<const Op> path_ops() { return kOps; }

}  // namespace nupa::fuzz
