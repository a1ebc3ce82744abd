// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/qp.hpp"

#include <arpa/inet.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/fd.hpp"

namespace tcpqp {
namespace {

constexpr size_t kChainMax = 64;  // work requests handed to ibv_post_* at once

// @fill adds what only this kind of request has; @post hands a chain over.
template <typename Wr, typename Fill, typename Post>
int post_chains(std::span<const Work> works, Fill fill, Post post) noexcept {
    std::array<Wr, kChainMax> wrs;
    std::array<ibv_sge, kChainMax> sges;
    while (!works.empty()) {
        const size_t n = std::min(works.size(), kChainMax);
        for (size_t i = 0; i < n; i++) {
            const Work& w = works[i];
            sges[i] = {reinterpret_cast<uint64_t>(w.address), w.bytes, w.lkey};
            wrs[i] = {};
            wrs[i].wr_id = w.cookie;
            wrs[i].sg_list = &sges[i];
            wrs[i].num_sge = 1;
            wrs[i].next = i + 1 < n ? &wrs[i + 1] : nullptr;
            fill(wrs[i], w);
        }
        Wr* bad = nullptr;
        if (const int error = post(wrs.data(), &bad); error != 0)
            return error;
        works = works.subspan(n);
    }
    return 0;
}

}  // namespace

QueuePair::QueuePair(const Context& context, const CompletionQueue& cq, QpDepth depth) {
    ibv_qp_init_attr attr{};
    attr.send_cq = cq.get();
    attr.recv_cq = cq.get();
    attr.srq = depth.srq;
    attr.cap = {.max_send_wr = depth.sends,
                .max_recv_wr = depth.receives,
                .max_send_sge = depth.sges,
                .max_recv_sge = depth.sges,
                .max_inline_data = depth.inline_bytes};
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = depth.signal_all;
    qp_.reset(ibv_create_qp(context.pd(), &attr));
    if (!qp_)
        throw_errno("create a queue pair");
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = static_cast<unsigned>(depth.access);
    if (int error = ibv_modify_qp(
            qp_.get(), &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
        error != 0)
        throw_errno("initialise the queue pair", error);
}

int QueuePair::post_sends(std::span<const Work> works) noexcept {
    const auto fill = [](ibv_send_wr& wr, const Work& w) {
        wr.opcode = w.without_imm ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.imm_data = htonl(w.imm);
    };
    return post_chains<ibv_send_wr>(works, fill, [this](ibv_send_wr* wrs, ibv_send_wr** bad) {
        return ibv_post_send(qp_.get(), wrs, bad);
    });
}

int QueuePair::post_receives(std::span<const Work> works) noexcept {
    const auto fill = [](ibv_recv_wr&, const Work&) {};
    return post_chains<ibv_recv_wr>(works, fill, [this](ibv_recv_wr* wrs, ibv_recv_wr** bad) {
        return ibv_post_recv(qp_.get(), wrs, bad);
    });
}

int QueuePair::ring_doorbell() noexcept {
    ib_uverbs_post_send_resp response{};
    // the body ends in a flexible array, so the command is laid out by hand
    std::array<unsigned char, sizeof(ib_uverbs_cmd_hdr) + sizeof(ib_uverbs_post_send)> command{};
    ib_uverbs_cmd_hdr header{};
    header.command = IB_USER_VERBS_CMD_POST_SEND;
    header.in_words = command.size() / 4;
    header.out_words = sizeof(response) / 4;
    ib_uverbs_post_send body{};
    body.response = reinterpret_cast<uint64_t>(&response);
    body.qp_handle = qp_->handle;
    body.wqe_size = sizeof(ib_uverbs_send_wr);
    std::memcpy(command.data(), &header, sizeof(header));
    std::memcpy(command.data() + sizeof(header), &body, sizeof(body));
    const ssize_t n = ::write(qp_->context->cmd_fd, command.data(), command.size());
    return n == static_cast<ssize_t>(command.size()) ? 0 : n < 0 ? errno : EIO;
}

}  // namespace tcpqp
