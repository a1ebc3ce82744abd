// SPDX-License-Identifier: BSD-3-Clause
// The write() commands of uverbs: completion, shared receive and queue pairs' queues.
#include <rdma/rdma_user_rxe.h>
#include <unistd.h>

#include <cerrno>

#include "user_fuzz_command.hpp"

namespace nupa::fuzz {
namespace {

uint32_t depth(Player& p) {
    if (p.dice.one_in(64))
        return static_cast<uint32_t>(p.dice.wild()) & 0x3ffff;
    return 1 + p.dice.below(p.dice.one_in(8) ? 1024 : 24);
}

int make_cq(Player& p, int fd, Object& made) {
    Answer<ib_uverbs_create_cq_resp, rxe_create_cq_resp> answer;
    ib_uverbs_create_cq body{};
    body.cqe = depth(p);
    body.comp_vector = p.dice.one_in(16) ? static_cast<uint32_t>(p.dice.wild()) : 0;
    const auto channel = p.pick(p.world.channels);
    body.comp_channel = channel && p.dice.one_in(2) ? *channel : -1;
    if (const int error = issue(p, fd, IB_USER_VERBS_CMD_CREATE_CQ, body, answer))
        return error;
    made = {fd, answer.word(0)};
    map_ring(p, {fd, answer.driver().mi.offset, answer.driver().mi.size, RingKind::kCompletion});
    const auto old = p.world.cqs.put(p.dice, made);
    if (old)
        (void)destroy(p, IB_USER_VERBS_CMD_DESTROY_CQ, old->fd, old->handle);
    return 0;
}

int op_cq(Player& p) {
    const auto c = p.pick(p.world.contexts);
    Object made;
    return c ? make_cq(p, c->fd, made) : kNothing;
}

int op_resize_cq(Player& p) {
    const auto cq = p.pick(p.world.cqs);
    if (!cq)
        return kNothing;
    Answer<ib_uverbs_resize_cq_resp, rxe_resize_cq_resp> answer;
    ib_uverbs_resize_cq body{};
    body.cq_handle = handle_of(p, cq);
    body.cqe = depth(p);
    p.note(cq->fd, body.cq_handle, body.cqe);
    if (const int error = issue(p, cq->fd, IB_USER_VERBS_CMD_RESIZE_CQ, body, answer))
        return error;
    map_ring(p,
             {cq->fd, answer.driver().mi.offset, answer.driver().mi.size, RingKind::kCompletion});
    return 0;
}

int op_notify_cq(Player& p) {
    const auto cq = p.pick(p.world.cqs);
    if (!cq)
        return kNothing;
    const ib_uverbs_req_notify_cq body{handle_of(p, cq), p.dice.below(3)};
    return issue(p, cq->fd, IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, body);
}

int op_destroy_cq(Player& p) {
    const auto cq = p.drop(p.world.cqs);
    return cq ? destroy(p, IB_USER_VERBS_CMD_DESTROY_CQ, cq->fd, handle_of(p, cq)) : kNothing;
}

int op_srq(Player& p) {
    const auto pd = p.pick(p.world.pds);
    if (!pd)
        return kNothing;
    Answer<ib_uverbs_create_srq_resp, rxe_create_srq_resp> answer;
    ib_uverbs_create_srq body{};
    body.pd_handle = handle_of(p, pd);
    body.max_wr = depth(p);
    body.max_sge = 1 + p.dice.below(3);
    body.srq_limit = p.dice.below(8);
    if (const int error = issue(p, pd->fd, IB_USER_VERBS_CMD_CREATE_SRQ, body, answer))
        return error;
    map_ring(p, {pd->fd, answer.driver().mi.offset, answer.driver().mi.size, RingKind::kReceive});
    const auto old = p.world.srqs.put(p.dice, Object{pd->fd, answer.word(0)});
    return old ? destroy(p, IB_USER_VERBS_CMD_DESTROY_SRQ, old->fd, old->handle) : 0;
}

int op_modify_srq(Player& p) {
    const auto srq = p.pick(p.world.srqs);
    if (!srq)
        return kNothing;
    uint64_t answer[8] = {};
    if (p.dice.one_in(3)) {
        ib_uverbs_query_srq body{};
        body.srq_handle = handle_of(p, srq);
        return issue(p, srq->fd, IB_USER_VERBS_CMD_QUERY_SRQ, body, answer);
    }
    ib_uverbs_modify_srq body{};
    body.srq_handle = handle_of(p, srq);
    body.attr_mask = p.dice.below(4);
    body.max_wr = depth(p);
    body.srq_limit = p.dice.below(16);
    return issue(p, srq->fd, IB_USER_VERBS_CMD_MODIFY_SRQ, body);
}

int op_destroy_srq(Player& p) {
    const auto srq = p.drop(p.world.srqs);
    return srq ? destroy(p, IB_USER_VERBS_CMD_DESTROY_SRQ, srq->fd, handle_of(p, srq)) : kNothing;
}

int modify_qp(Player& p, const QueuePair& qp, uint8_t state, uint32_t mask) {
    ib_uverbs_modify_qp body{};
    body.qp_handle = qp.handle;
    body.attr_mask = mask;
    body.qp_state = state;
    body.cur_qp_state = static_cast<uint8_t>(p.dice.below(8));
    body.port_num = 1;
    body.qp_access_flags = p.dice.one_in(4) ? p.dice.flags(8) : 0xe;
    body.path_mtu = 3;
    body.dest_qp_num = p.dice.below(64);
    body.max_rd_atomic = static_cast<uint8_t>(p.dice.below(40));
    body.max_dest_rd_atomic = static_cast<uint8_t>(p.dice.below(40));
    p.note(qp.fd, qp.handle, state);
    return issue(p, qp.fd, IB_USER_VERBS_CMD_MODIFY_QP, body);
}

int make_qp(Player& p, const Object& pd, uint32_t send_cq, uint32_t receive_cq, uint8_t type,
            QueuePair& made) {
    Answer<ib_uverbs_create_qp_resp, rxe_create_qp_resp> answer;
    ib_uverbs_create_qp body{};
    body.pd_handle = handle_of(p, pd);
    body.send_cq_handle = send_cq;
    body.recv_cq_handle = receive_cq;
    body.max_send_wr = depth(p);
    body.max_recv_wr = depth(p);
    body.max_send_sge = 1 + p.dice.below(4);
    body.max_recv_sge = 1 + p.dice.below(4);
    body.max_inline_data = p.dice.one_in(2) ? p.dice.below(513) : 0;
    body.sq_sig_all = static_cast<uint8_t>(p.dice.below(2));
    body.qp_type = static_cast<uint8_t>(p.dice.one_in(16) ? p.dice.below(16) : type);
    const auto srq = p.pick(p.world.srqs, pd.fd);
    if (srq && p.dice.one_in(6)) {
        body.is_srq = 1;
        body.srq_handle = srq->handle;
    }
    if (const int error = issue(p, pd.fd, IB_USER_VERBS_CMD_CREATE_QP, body, answer))
        return error;
    const QueuePair qp = made = {pd.fd, answer.word(0), answer.word(1), body.qp_type};
    map_ring(p, {pd.fd, answer.driver().sq_mi.offset, answer.driver().sq_mi.size, RingKind::kSend,
                 qp.handle, qp.type});
    map_ring(p, {pd.fd, answer.driver().rq_mi.offset, answer.driver().rq_mi.size,
                 RingKind::kReceive, qp.handle, qp.type});
    // INIT: state, P_Key, port, and access or QKEY
    if (!p.dice.one_in(8))
        (void)modify_qp(p, qp, 1, qp.type == kDatagram ? 0x71 : 0x39);
    const auto old = p.world.qps.put(p.dice, qp);
    return old ? destroy(p, IB_USER_VERBS_CMD_DESTROY_QP, old->fd, old->handle) : 0;
}

// With a CQ of its own.
int ready_qp(Player& p, uint8_t type, QueuePair& made) {
    const auto pd = p.pick(p.world.pds);
    if (!pd)
        return kNothing;
    Object cq;
    if (const int error = make_cq(p, pd->fd, cq))
        return error;
    if (!p.world.regions.pick(0, [&](const Region& r) { return r.fd == pd->fd; }))
        (void)make_region(p, *pd);
    return make_qp(p, *pd, cq.handle, cq.handle, type, made);
}

int op_qp(Player& p) {
    QueuePair made;
    return ready_qp(p, kReliable, made);
}

int op_qp_shared(Player& p) {
    const auto pd = p.pick(p.world.pds);
    const auto a = pd ? p.pick(p.world.cqs, pd->fd) : std::nullopt;
    const auto b = pd ? p.pick(p.world.cqs, pd->fd) : std::nullopt;
    QueuePair made;
    return b && a ? make_qp(p, *pd, handle_of(p, a), handle_of(p, b), kReliable, made) : kNothing;
}

int op_modify_qp(Player& p) {
    const auto qp = p.pick(p.world.qps);
    if (!qp)
        return kNothing;
    static constexpr uint32_t kMasks[] = {0x1, 0x39, 0x1, 0x8, 0x8, 0x8091, 0x20001, 0x1ffff};
    const uint32_t mask = p.dice.one_in(8) ? p.dice.flags(26) : p.dice.of(kMasks);
    return modify_qp(p, *qp, static_cast<uint8_t>(p.dice.below(8)), mask);
}

int op_query_qp(Player& p) {
    const auto qp = p.pick(p.world.qps);
    if (!qp)
        return kNothing;
    ib_uverbs_query_qp body{};
    body.qp_handle = qp->handle;
    body.attr_mask = p.dice.flags(22);
    ib_uverbs_query_qp_resp answer{};
    return issue(p, qp->fd, IB_USER_VERBS_CMD_QUERY_QP, body, answer);
}

int op_destroy_qp(Player& p) {
    const auto qp = p.drop(p.world.qps);
    return qp ? destroy(p, IB_USER_VERBS_CMD_DESTROY_QP, qp->fd, qp->handle) : kNothing;
}

int op_doorbell(Player& p) {
    const auto qp = p.pick(p.world.qps);
    return qp ? doorbell(qp->fd, qp->handle) : kNothing;
}

constexpr Op kOps[] = {
    {"uverbs_create_cq", 4, op_cq},
    {"uverbs_resize_cq", 4, op_resize_cq},
    {"uverbs_req_notify_cq", 4, op_notify_cq},
    {"uverbs_destroy_cq", 2, op_destroy_cq},
    {"uverbs_create_srq", 3, op_srq},
    {"uverbs_modify_srq", 3, op_modify_srq},
    {"uverbs_destroy_srq", 1, op_destroy_srq},
    {"uverbs_create_qp", 10, op_qp},
    {"uverbs_create_qp_shared_cq", 6, op_qp_shared},
    {"uverbs_modify_qp", 4, op_modify_qp},
    {"uverbs_query_qp", 1, op_query_qp},
    {"uverbs_destroy_qp", 4, op_destroy_qp},
    {"uverbs_post_send", 20, op_doorbell},
};

}  // namespace

int doorbell(int fd, uint32_t qp_handle) noexcept {
    ib_uverbs_post_send_resp response{};
    struct {
        ib_uverbs_cmd_hdr header;
        std::array<uint32_t, sizeof(ib_uverbs_post_send) / 4> body;
    } command{{IB_USER_VERBS_CMD_POST_SEND, sizeof command / 4, sizeof response / 4}, {}};
    ib_uverbs_post_send body{};
    body.response = reinterpret_cast<uint64_t>(&response);
    body.qp_handle = qp_handle;
    body.wqe_size = sizeof(ib_uverbs_send_wr);
    std::memcpy(command.body.data(), &body, sizeof body);
    return result(write(fd, &command, sizeof command));
}

std::optional<QueuePair> fresh_qp(Player& p, uint8_t type) {
    QueuePair made;
    for (uint32_t tries = 0; tries < 3; tries++) {
        if (!ready_qp(p, type, made))
            return made;
        (void)open_context(p);
    }
    return std::nullopt;
}

std::span<const Op> queue_ops() { return kOps; }

}  // namespace nupa::fuzz
