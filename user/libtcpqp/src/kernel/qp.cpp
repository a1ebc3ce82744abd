// SPDX-License-Identifier: BSD-3-Clause
#include "kernel/qp.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include "kernel/mr.hpp"
#include "provider/deadline.hpp"

namespace tcpqp::module {
namespace {

constexpr size_t kPostBatch = 64;
constexpr uint64_t kReceiveCookie = 1ull << 63;
constexpr uint32_t kInlineBytes = 128;  // to copy so few costs less than to hold their pages

uint32_t key_of(const tcpqp_work& work) noexcept {
    return work.mr == nullptr ? 0 : static_cast<const Mr*>(work.mr)->lkey();
}

QpDepth depth_of(const QpRequest& request) noexcept {
    return {.sends = request.sends, .receives = request.receives, .inline_bytes = kInlineBytes};
}

bool is_mapped(const tcpqp_work& work) noexcept {
    return work.mr != nullptr && static_cast<const Mr*>(work.mr)->is_mapped();
}

// As many as @ids has room for, in batches that @post takes as a chain.  Number posted, or a
// negative errno if none was.
template <typename Wr, typename Fill, typename Post>
int post_batches(std::span<const tcpqp_work> works, Ids& ids, Fill fill, Post post) noexcept {
    const size_t total = std::min(works.size(), ids.room());
    for (size_t done = 0; done < total;) {
        std::array<Wr, kPostBatch> batch;
        std::array<ibv_sge, kPostBatch> sges;
        const size_t n = std::min(total - done, kPostBatch);
        for (size_t i = 0; i < n; i++) {
            const tcpqp_work& work = works[done + i];
            sges[i] = {reinterpret_cast<uint64_t>(work.addr), work.length, key_of(work)};
            batch[i] = {};
            batch[i].wr_id = ids.slot(i);
            batch[i].sg_list = &sges[i];
            batch[i].num_sge = 1;
            batch[i].next = i + 1 < n ? &batch[i + 1] : nullptr;
            fill(batch[i], work);
        }
        if (const int error = post(batch.data()); error != 0)
            return done != 0 ? static_cast<int>(done) : -error;
        for (size_t i = 0; i < n; i++)
            ids.push(works[done + i].id);
        done += n;
    }
    return total == 0 ? -EAGAIN : static_cast<int>(total);
}

}  // namespace

Qp::Qp(Cq& queue, const QpRequest& request)
    : tcpqp_qp(queue),
      cq_(queue),
      qp_(queue.device(), queue.verbs(), depth_of(request)),
      ring_(queue.device(), *qp_.get()),
      sends_(request.sends),
      receives_(request.receives) {
    cq_.add(qp_.get()->qp_num, *this);
}

Qp::~Qp() { cq_.remove(qp_.get()->qp_num); }

int Qp::attach(const QpRequest& request, uint32_t engine, uint32_t& reason) noexcept {
    tcp_qp_attach_req r{};
    r.engine = engine;
    r.flags = request.nowait ? TCP_QP_ATTACH_F_NOWAIT : 0;
    if (const int error = post_first(request.first); error != 0)
        return error;
    const uint32_t flags = r.flags;
    r.flags |= TCP_QP_ATTACH_F_LATE_SENDS;
    Attached attached = attach_in_time(request, r);
    if (attached.error == EINVAL) {  // a module of before, perhaps
        r.flags = flags;
        attached = attach_in_time(request, r);
    }
    reason = reason_ = attached.response.reason;
    return -attached.error;
}

// No signal ends it, nor makes it longer: the peer may be there already.
Attached Qp::attach_in_time(const QpRequest& request, tcp_qp_attach_req r) noexcept {
    const Deadline deadline(request.timeout_ms);
    Attached attached;
    do {
        r.timeout_ms = static_cast<uint32_t>(std::max(1, deadline.left_ms()));
        attached = tcpqp::attach(cq_.device(), qp_, request.socket, r);
    } while (attached.error == EINTR && !deadline.over());
    if (attached.error == EINTR) {
        attached.error = ETIMEDOUT;
        attached.response.reason = TCP_QP_REASON_NO_PEER_QP;
    }
    return attached;
}

int Qp::post_send(std::span<const tcpqp_work> works) noexcept {
    const std::lock_guard guard(cq_.lock());
    return ended_ ? -ENOTCONN : tell(works, fill_sends(works));
}

// With receives it gives the peer credits, now.
int Qp::post_recv(std::span<const tcpqp_work> works) noexcept {
    const std::lock_guard guard(cq_.lock());
    return ended_ ? -ENOTCONN : tell(works, fill_receives(works));
}

int Qp::tell(std::span<const tcpqp_work> works, int posted) noexcept {
    if (posted <= 0)
        return posted;
    if ((works.back().flags & TCPQP_F_MORE) != 0) {
        cq_.ring_later(*this);
        return posted;
    }
    const int error = cq_.ring(*this);
    return error != 0 ? error : posted;
}

int Qp::post_first(std::span<const tcpqp_work> works) noexcept {
    const std::lock_guard guard(cq_.lock());
    if (works.empty())
        return 0;
    const int posted = fill_receives(works);
    return posted < 0 ? posted : 0;
}

int Qp::fill_receives(std::span<const tcpqp_work> works) noexcept {
    const auto fill = [](ibv_recv_wr& wr, const tcpqp_work&) { wr.wr_id |= kReceiveCookie; };
    return post_batches<ibv_recv_wr>(works, receives_, fill, [this](ibv_recv_wr* chain) {
        ibv_recv_wr* bad = nullptr;
        return ibv_post_recv(qp_.get(), chain, &bad);
    });
}

int Qp::fill_sends(std::span<const tcpqp_work> works) noexcept {
    const auto fill = [this](ibv_send_wr& wr, const tcpqp_work& w) {
        const bool imm = (w.flags & TCPQP_F_IMM) != 0;
        const bool copied = w.length <= ring_.inline_bytes() && is_mapped(w);
        wr.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        wr.imm_data = htonl(imm ? w.imm : 0);
        wr.send_flags = IBV_SEND_SIGNALED | (copied ? IBV_SEND_INLINE : 0);
    };
    return post_batches<ibv_send_wr>(works, sends_, fill,
                                     [this](ibv_send_wr* chain) { return ring_.post(chain); });
}

int Qp::cancel() noexcept {
    const std::lock_guard guard(cq_.lock());
    if (ended_)
        return 0;
    ended_ = true;
    reason_ = TCPQP_REASON_CANCELED;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    return -ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE);
}

bool Qp::ended() noexcept {
    const std::lock_guard guard(cq_.lock());
    return ended_;
}

void Qp::completed(const ibv_wc& wc, tcpqp_completion& out) noexcept {
    const bool receive = (wc.wr_id & kReceiveCookie) != 0;
    out.opcode = receive ? TCPQP_OP_RECV : TCPQP_OP_SEND;
    out.id = (receive ? receives_ : sends_).pop(static_cast<uint32_t>(wc.wr_id));
    ended_ |= wc.status != IBV_WC_SUCCESS;
}

int Qp::query(tcpqp_qp_info& info) noexcept {
    tcp_qp_info from{};
    if (const int error = tcpqp::query(cq_.device(), qp_, from); error != 0)
        return -error;
    const std::lock_guard guard(cq_.lock());
    info.engine = from.engine;
    info.reason = reason_ == TCPQP_REASON_CANCELED ? reason_ : from.reason;
    info.tx_messages = from.tx_messages;
    info.tx_bytes = from.tx_bytes;
    info.tx_zerocopy_bytes = from.tx_zerocopy_bytes;
    info.rx_messages = from.rx_messages;
    info.rx_bytes = from.rx_delivered_bytes;
    info.rx_placed_bytes = from.rx_placed_bytes;
    info.rx_copied_bytes = from.rx_copied_bytes;
    return 0;
}

}  // namespace tcpqp::module
