// SPDX-License-Identifier: BSD-3-Clause
// RDMA_VERBS_IOCTL: this project's own methods and a few of the core's, with attributes that may be
// wrong in every way.  Completion descriptors, too.
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <tcp_qp/tcp_qp.h>
#include <unistd.h>

#include <cstring>

#include "user_fuzz_world.hpp"
#include "verbs/ioctl.hpp"

namespace nupa::fuzz {
namespace {

using tcpqp::pointer_attr;
using tcpqp::value_attr;

constexpr uint32_t kDamagedOneIn = 16;
constexpr uint32_t kRounds = 3;  // of posts on what is attached
constexpr size_t kAttrsMax = 16;
constexpr uint32_t kOwnNamespace = 1u << UVERBS_ID_NS_SHIFT;

// struct ib_uverbs_ioctl_hdr, whose flexible array nothing may follow in C++.
struct Header {
    uint16_t length, object_id, method_id, num_attrs;
    uint64_t reserved1;
    uint32_t driver_id, reserved2;
};
static_assert(sizeof(Header) == sizeof(ib_uverbs_ioctl_hdr));

struct Call {
    Header header;
    std::array<ib_uverbs_attr, kAttrsMax> attrs;
};

void damage(Player& p, Call& c) {
    auto& attr = c.attrs[p.dice.below(c.header.num_attrs ? c.header.num_attrs : 1)];
    switch (p.dice.below(9)) {
        case 0:
            c.header.method_id =
                static_cast<uint16_t>((p.dice.below(2) ? kOwnNamespace : 0) + p.dice.below(12));
            return;
        case 1:
            c.header.object_id = static_cast<uint16_t>(p.dice.below(20));
            return;
        case 2:
            c.header.num_attrs = static_cast<uint16_t>(p.dice.below(kAttrsMax + 2));
            return;
        case 3:
            c.header.length = static_cast<uint16_t>(p.dice.wild());
            return;
        case 4:
            attr.attr_id = static_cast<uint16_t>(p.dice.below(2) ? kOwnNamespace + p.dice.below(6)
                                                                 : p.dice.wild());
            return;
        case 5:
            attr.len = static_cast<uint16_t>(p.dice.wild());
            return;
        case 6:
            attr.flags = static_cast<uint16_t>(p.dice.wild());
            return;
        case 7:
            attr = c.attrs[p.dice.below(kAttrsMax)];
            return;
        default:
            attr.data = p.dice.wild();
    }
}

template <size_t N>
int invoke(Player& p, int fd, uint16_t object, uint16_t method,
           std::array<ib_uverbs_attr, N>& attrs) {
    Call c{};
    c.header.length = sizeof c.header + N * sizeof(ib_uverbs_attr);
    c.header.object_id = object;
    c.header.method_id = method;
    c.header.num_attrs = N;
    c.header.driver_id =
        p.dice.one_in(64) ? static_cast<uint16_t>(p.dice.wild()) : uint16_t{RDMA_DRIVER_RXE};
    std::copy(attrs.begin(), attrs.end(), c.attrs.begin());
    if (p.dice.one_in(kDamagedOneIn))
        damage(p, c);
    const int error = result(ioctl(fd, RDMA_VERBS_IOCTL, &c));
    std::copy_n(c.attrs.begin(), N, attrs.begin());
    return error;
}

int attach(Player& p, const QueuePair& qp, int socket, uint32_t flags) {
    tcp_qp_attach_req request{};
    request.engine = p.world.o.engine == "offload"    ? TCP_QP_ENGINE_OFFLOAD
                     : p.world.o.engine == "software" ? TCP_QP_ENGINE_SOFTWARE
                                                      : TCP_QP_ENGINE_AUTO;
    if (p.dice.one_in(3))
        request.engine = p.dice.below(p.dice.one_in(8) ? 5 : 3);
    request.flags = flags;
    request.timeout_ms = 1 + p.dice.below(p.dice.one_in(8) ? 200 : 20);
    if (p.dice.one_in(64))
        request.reserved = static_cast<uint32_t>(p.dice.wild());
    tcp_qp_attach_resp response{};
    std::array attrs{value_attr(TCP_QP_ATTR_ATTACH_HANDLE, qp.handle),
                     value_attr(TCP_QP_ATTR_ATTACH_SOCKET, static_cast<uint64_t>(socket)),
                     pointer_attr(TCP_QP_ATTR_ATTACH_REQ, &request, sizeof request),
                     pointer_attr(TCP_QP_ATTR_ATTACH_RESP, &response, sizeof response)};
    p.note(qp.handle, socket, flags);
    return invoke(p, qp.fd, UVERBS_OBJECT_QP, TCP_QP_METHOD_ATTACH, attrs);
}

uint32_t attach_flags(Player& p) {
    return (p.dice.one_in(4) ? 0 : TCP_QP_ATTACH_F_NOWAIT) |
           (p.dice.one_in(4) ? p.dice.flags(5) : 0);
}

int op_attach(Player& p) {
    const auto qp = p.dice.one_in(2) ? fresh_qp(p) : p.pick(p.world.qps);
    const auto socket = p.pick(p.world.sockets);
    return qp && socket ? attach(p, *qp, *socket, attach_flags(p)) : kNothing;
}

// Both ends of a new connection, so that there is traffic.
int op_attach_pair(Player& p) {
    const auto a = p.dice.one_in(4) ? p.pick(p.world.qps) : fresh_qp(p);
    const auto b = p.dice.one_in(4) ? p.pick(p.world.qps) : fresh_qp(p);
    if (!a || !b)
        return kNothing;
    const auto pair = connected_pair(p.dice.one_in(2) ? p.world.o.local : "127.0.0.1");
    if (!pair)
        return errno;
    keep_socket(p, pair->first);
    keep_socket(p, pair->second);
    const int error = attach(p, *a, pair->first, TCP_QP_ATTACH_F_NOWAIT);
    const int other = attach(p, *b, pair->second, TCP_QP_ATTACH_F_NOWAIT);
    for (uint32_t i = 0; !error && !other && i < kRounds; i++) {
        (void)post_to(p, *b, RingKind::kReceive);
        (void)post_to(p, *a, RingKind::kSend);
        (void)post_to(p, *a, RingKind::kReceive);
        (void)post_to(p, *b, RingKind::kSend);
    }
    return error ? error : other;
}

// To the honest one, which attaches to whoever comes.
int op_attach_peer(Player& p) {
    const auto qp = p.dice.one_in(4) ? p.pick(p.world.qps) : fresh_qp(p);
    if (!qp || !p.world.o.port)
        return kNothing;
    const int fd = connected_to(p.world.o.peer, p.world.o.port);
    if (fd < 0)
        return errno;
    keep_socket(p, fd);
    const int error = attach(p, *qp, fd, attach_flags(p));
    for (uint32_t i = 0; !error && i < kRounds; i++) {
        (void)post_to(p, *qp, RingKind::kReceive);
        (void)post_to(p, *qp, RingKind::kSend);
    }
    return error;
}

int op_query(Player& p) {
    const auto qp = p.pick(p.world.qps);
    if (!qp)
        return kNothing;
    tcp_qp_info info{};
    std::array attrs{value_attr(TCP_QP_ATTR_QUERY_HANDLE, qp->handle),
                     pointer_attr(TCP_QP_ATTR_QUERY_INFO, &info, sizeof info)};
    return invoke(p, qp->fd, UVERBS_OBJECT_QP, TCP_QP_METHOD_QUERY, attrs);
}

int op_sq(Player& p) {
    const auto qp = p.pick(p.world.qps);
    if (!qp)
        return kNothing;
    tcp_qp_sq sq{};
    std::array attrs{value_attr(TCP_QP_ATTR_SQ_HANDLE, qp->handle),
                     pointer_attr(TCP_QP_ATTR_SQ_RESP, &sq, sizeof sq)};
    const int error = invoke(p, qp->fd, UVERBS_OBJECT_QP, TCP_QP_METHOD_SQ, attrs);
    if (!error)
        map_ring(p, {qp->fd, sq.offset, sq.bytes, RingKind::kSend, qp->handle});
    return error;
}

// The eventfd stays among the sockets, which are written to and closed.
int op_bell(Player& p) {
    const auto qp = p.pick(p.world.qps);
    if (!qp)
        return kNothing;
    tcp_qp_bell bell{.eventfd = -1, .count = 0};
    if (!p.dice.one_in(4)) {
        bell.eventfd = eventfd(p.dice.below(3), EFD_CLOEXEC | EFD_NONBLOCK);
        if (bell.eventfd < 0)
            return errno;
        keep_socket(p, bell.eventfd);
        bell.count = p.dice.one_in(8) ? static_cast<uint32_t>(p.dice.wild()) : p.dice.below(4);
    } else if (const auto socket = p.pick(p.world.sockets); socket && p.dice.one_in(2)) {
        bell = {.eventfd = *socket, .count = 1};
    }
    std::array attrs{value_attr(TCP_QP_ATTR_BELL_HANDLE, qp->handle),
                     tcpqp::inline_attr(TCP_QP_ATTR_BELL_REQ, bell)};
    p.note(qp->handle, bell.eventfd, bell.count);
    const int error = invoke(p, qp->fd, UVERBS_OBJECT_QP, TCP_QP_METHOD_BELL, attrs);
    for (uint32_t i = 0; !error && bell.eventfd >= 0 && i < kRounds; i++) {
        const uint64_t one = 1;
        (void)post_to(p, *qp, RingKind::kSend);
        (void)!write(bell.eventfd, &one, sizeof one);
    }
    return error;
}

int op_cq_fd(Player& p) {
    const auto cq = p.pick(p.world.cqs);
    if (!cq)
        return kNothing;
    int32_t fd = -1;
    std::array attrs{value_attr(TCP_QP_ATTR_CQ_FD_HANDLE, cq->handle),
                     pointer_attr(TCP_QP_ATTR_CQ_FD_RESP, &fd, sizeof fd)};
    if (const int error = invoke(p, cq->fd, UVERBS_OBJECT_CQ, TCP_QP_METHOD_CQ_FD, attrs))
        return error;
    if (const auto old = p.world.cq_fds.put(p.dice, {fd}))
        close(old->fd);
    return 0;
}

int op_cq_call(Player& p) {
    const auto cq = p.pick(p.world.cq_fds);
    if (!cq)
        return kNothing;
    const auto qp = p.pick(p.world.qps);
    tcp_qp_cq_call call{};
    call.flags = p.dice.one_in(16) ? p.dice.flags(8) : p.dice.below(8);
    if (call.flags & TCP_QP_CQ_DOORBELL && qp)
        call.qpn = p.dice.one_in(32) ? static_cast<uint32_t>(p.dice.wild()) : qp->number;
    if (call.flags & TCP_QP_CQ_WAIT && !p.dice.one_in(16))
        call.flags |= TCP_QP_CQ_TIMEOUT;
    if (call.flags & TCP_QP_CQ_TIMEOUT)
        call.timeout_ns = p.dice.one_in(16) ? p.dice.wild() : p.dice.below(3000000);
    p.note(cq->fd, call.flags, call.qpn);
    return result(ioctl(cq->fd, TCP_QP_IOCTL_CQ, &call));
}

int op_cq_fd_poll(Player& p) {
    const auto cq = p.pick(p.world.cq_fds);
    if (!cq)
        return kNothing;
    if (p.dice.one_in(2)) {
        pollfd ready{cq->fd, static_cast<short>(p.dice.wild()), 0};
        return result(poll(&ready, 1, static_cast<int>(p.dice.below(3))));
    }
    const tcpqp::Fd events(epoll_create1(EPOLL_CLOEXEC));
    epoll_event wanted{EPOLLIN | (p.dice.one_in(2) ? EPOLLET : 0u), {}};
    if (epoll_ctl(events.get(), EPOLL_CTL_ADD, cq->fd, &wanted))
        return errno;
    return result(epoll_wait(events.get(), &wanted, 1, static_cast<int>(p.dice.below(3))));
}

int op_cq_fd_close(Player& p) {
    const auto old = p.take(p.world.cq_fds);
    return old ? result(close(old->fd)) : kNothing;
}

// A region of a dma-buf.
int op_dmabuf(Player& p) {
    const auto pd = p.pick(p.world.pds);
    if (!pd)
        return kNothing;
    constexpr size_t kBytes = 64 << 10;
    const tcpqp::Fd memory(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const tcpqp::Fd maker(open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
    if (!memory || !maker || ftruncate(memory.get(), kBytes) ||
        fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK))
        return errno;
    const udmabuf_create wanted{static_cast<uint32_t>(memory.get()), UDMABUF_FLAGS_CLOEXEC, 0,
                                kBytes};
    const tcpqp::Fd buffer(ioctl(maker.get(), UDMABUF_CREATE, &wanted));
    if (!buffer)
        return errno;
    uint32_t lkey = 0, rkey = 0;
    const uint64_t offset = p.dice.below(kBytes),
                   bytes = p.dice.one_in(8) ? p.dice.wild() : kBytes - offset;
    const uint64_t iova = reinterpret_cast<uint64_t>(p.world.memory.slot(0)) + offset;
    std::array attrs{
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd->handle),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset, sizeof offset),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, bytes, sizeof bytes),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova, sizeof iova),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_FD, static_cast<uint32_t>(buffer.get()),
                   sizeof(uint32_t)),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, p.dice.below(16), sizeof(uint32_t)),
        pointer_attr(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &lkey, sizeof lkey),
        pointer_attr(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &rkey, sizeof rkey),
    };
    const int error = invoke(p, pd->fd, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, attrs);
    if (!error)
        p.world.regions.put(
            p.dice, Region{pd->fd, static_cast<uint32_t>(attrs[0].data), lkey, rkey, iova, bytes});
    return error;
}

// Any method with handles and pointers where they may be wanted.
int op_junk(Player& p) {
    const auto c = p.pick(p.world.contexts);
    if (!c)
        return kNothing;
    std::array<uint8_t, 256> room{};
    std::array<ib_uverbs_attr, 6> attrs{};
    for (auto& attr : attrs) {
        attr = value_attr(
            static_cast<uint16_t>((p.dice.one_in(3) ? kOwnNamespace : 0) + p.dice.below(10)),
            p.dice.one_in(2) ? p.dice.below(8) : reinterpret_cast<uint64_t>(room.data()),
            static_cast<uint16_t>(p.dice.one_in(2) ? 0 : p.dice.below(room.size())));
        attr.flags = static_cast<uint16_t>(p.dice.below(2));
    }
    const uint16_t object = static_cast<uint16_t>(p.dice.below(18));
    const uint16_t method =
        static_cast<uint16_t>((p.dice.one_in(2) ? kOwnNamespace : 0) + p.dice.below(10));
    p.note(c->fd, object, method);
    return invoke(p, c->fd, object, method, attrs);
}

constexpr Op kOps[] = {
    {"method_attach", 16, op_attach},
    {"method_attach_pair", 14, op_attach_pair},
    {"method_attach_peer", 8, op_attach_peer},
    {"method_query", 3, op_query},
    {"method_sq", 3, op_sq},
    {"method_bell", 6, op_bell},
    {"method_cq_fd", 3, op_cq_fd},
    {"method_cq_call", 10, op_cq_call},
    {"method_cq_fd_poll", 3, op_cq_fd_poll},
    {"method_cq_fd_close", 2, op_cq_fd_close},
    {"method_reg_dmabuf", 2, op_dmabuf},
    {"method_junk", 4, op_junk},
};

}  // namespace

std::span<const Op> method_ops() { return kOps; }

}  // namespace nupa::fuzz
