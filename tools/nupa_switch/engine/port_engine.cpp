// SPDX-License-Identifier: BSD-3-Clause
#include "port_engine.hpp"

#include <tcp_qp/tcp_bth_option.h>
#include <algorithm>
#include <array>

namespace nupa {

PortEngine::PortEngine(const HostMemory& memory, PortStats& stats, std::uint64_t hash_seed)
    : PortEngine(memory, stats, hash_seed, Limits{}) {}

PortEngine::PortEngine(const HostMemory& memory, PortStats& stats, std::uint64_t hash_seed,
                       Limits limits)
    : memory_(memory),
      stats_(stats),
      budget_(limits.memory_bytes),
      mrs_(hash_seed, budget_, limits.mrs_max),
      cqs_(hash_seed, budget_, limits.qps_max),
      srqs_(hash_seed, budget_, limits.qps_max),
      qps_(hash_seed, budget_, limits.qps_max) {}

PortEngine::~PortEngine() = default;

nupa_admin_status PortEngine::mr_reg(std::uint32_t key, const nupa_cmd_mr& cmd) noexcept {
    return mrs_.reg(memory_, key, cmd);
}

nupa_admin_status PortEngine::mr_reg_begin(std::uint32_t key, const nupa_cmd_mr& cmd) noexcept {
    return mrs_.begin(memory_, key, cmd);
}

std::optional<nupa_admin_status> PortEngine::mr_reg_go_on(std::uint32_t pages_max) noexcept {
    return mrs_.go_on(memory_, pages_max);
}

nupa_admin_status PortEngine::mr_dereg(std::uint32_t key) noexcept { return mrs_.dereg(key); }

nupa_admin_status PortEngine::qp_create(std::uint32_t qpn, const nupa_cmd_qp& cmd) noexcept {
    const bool completes = cmd.flags & NUPA_QP_F_COMPLETE, shares = cmd.flags & NUPA_QP_F_SRQ,
               sends = cmd.flags & NUPA_QP_F_SENDS;
    CompletionQueue* cq = completes ? cqs_.find(cmd.cq) : nullptr;
    SharedReceiveQueue* srq = shares ? srqs_.find(cmd.srq) : nullptr;
    CompletionQueue* send_cq = sends ? cqs_.find(cmd.send_cq) : nullptr;
    if ((completes && !cq) || (shares && !srq) || (sends && !send_cq))
        return NUPA_E_NOENT;
    const nupa_admin_status status = qps_.create(memory_, qpn, cmd);
    if (status == NUPA_OK && cq) {
        qps_.find(qpn)->completions.use(*cq, srq, send_cq);
        cq->users++;
        if (srq)
            srq->users++;
        if (send_cq)
            send_cq->users++;
    }
    return status;
}

nupa_admin_status PortEngine::qp_destroy(std::uint32_t qpn) noexcept {
    const QpContext* qp = qps_.find(qpn);
    if (CompletionQueue* cq = qp ? qp->completions.cq() : nullptr)
        cq->users--;
    if (SharedReceiveQueue* srq = qp ? qp->completions.srq() : nullptr)
        srq->users--;
    if (CompletionQueue* cq = qp ? qp->completions.send_cq() : nullptr)
        cq->users--;
    return qps_.destroy(qpn);
}

nupa_admin_status PortEngine::cq_create(std::uint32_t id, const nupa_cmd_cq& cmd) noexcept {
    return cqs_.create(memory_, id, cmd);
}

nupa_admin_status PortEngine::cq_destroy(std::uint32_t id) noexcept { return cqs_.destroy(id); }

nupa_admin_status PortEngine::srq_create(std::uint32_t id, const nupa_cmd_srq& cmd) noexcept {
    return srqs_.create(memory_, id, cmd);
}

nupa_admin_status PortEngine::srq_destroy(std::uint32_t id) noexcept { return srqs_.destroy(id); }

const QpStats* PortEngine::qp_stats(std::uint32_t qpn) const noexcept {
    const QpContext* qp = qps_.find(qpn);
    return qp ? &qp->stats : nullptr;
}

void PortEngine::reset() noexcept {
    qps_.clear();
    cqs_.clear();
    srqs_.clear();
    mrs_.clear();
    budget_.clear();
}

namespace {

// Flows, each once where it comes several times in a row.
class Flows {
public:
    void add(const FlowKey& flow) noexcept {
        if (count_ && flows_[count_ - 1] == flow)
            return;
        for (std::size_t i = 0; i < FlowKey::kWords; i++)
            flows_[count_].set_word(i, flow.word(i));
        count_++;
    }
    std::span<const FlowKey> all() const noexcept { return {flows_.data(), count_}; }

private:
    std::array<FlowKey, kLookaheadMax> flows_;
    std::size_t count_ = 0;
};

}  // namespace

void PortEngine::expect_transmit(std::span<const Packet> packets) const noexcept {
    expect(packets, [](const Packet& packet) noexcept { return packet.flow().reversed(); });
}

void PortEngine::expect_receive(std::span<const Packet> packets) const noexcept {
    expect(packets, [](const Packet& packet) noexcept { return packet.flow(); });
}

template <class FlowOf>
void PortEngine::expect(std::span<const Packet> packets, FlowOf flow_of) const noexcept {
    if (qps_.size() == 0)
        return;
    Flows flows;
    for (const Packet& packet : packets)
        if (packet.at.tcp())
            flows.add(flow_of(packet));
    QpTable::Guesses guesses;
    qps_.expect(flows.all(), guesses);
    qps_.expect_contexts({guesses.data(), flows.all().size()});
}

TxRewrite PortEngine::transmit(const Packet& packet, std::uint16_t egress) noexcept {
    if (qps_.size() == 0 || !packet.at.tcp())
        return {};
    QpContext* qp = qps_.find(packet.flow().reversed());
    if (!qp)
        return {};
    qp->watch_tx(packet, egress);
    if (qp->over())
        return {};
    const std::uint32_t bytes = packet.payload.bytes();
    if (bytes) {
        qp->stats.add(NUPA_QP_STAT_tx_segments, packet.segments());
        qp->stats.add(NUPA_QP_STAT_tx_bytes, bytes);
    }
    return qp->rewrite();
}

inline QpContext* PortEngine::find(const Packet& packet) const noexcept {
    QpContext* qp = qps_.size() == 0 ? nullptr : qps_.find(packet.flow());
    return qp && !qp->over() ? qp : nullptr;
}

PortEngine::Runs PortEngine::runs(const Packet& burst) const noexcept {
    const Headers& at = burst.at;
    const QpContext* qp = find(burst);
    if (!qp)
        return Runs::kDelivered;
    const std::uint32_t bytes = burst.payload.bytes();
    if (qp->stream())
        return at.seq == qp->disorder.next() && qp->in_order() &&
                       qp->post.posted(at.seq) >= std::min(bytes, kPostRunMinBytes)
                   ? Runs::kPlaced
                   : Runs::kDelivered;
    tcp_bth b;
    const bool named = tcp_bth_find(burst.header.data() + at.options_at, at.option_bytes(), at.seq,
                                    bytes, &b, nullptr) == TCP_BTH_OK &&
                       b.ver == 1;
    if (named && tcp_bth_is_mixed_train(b.opcode))
        return qp->lengths.find(b) ? Runs::kPlaced : Runs::kNone;
    const bool few =
        named && (!tcp_bth_is_even_train(b.opcode) || bytes / b.length <= kTrainRunMessagesMax);
    return few ? Runs::kPlaced : Runs::kNone;
}

std::uint32_t PortEngine::placed_run_max(const Packet& burst) const noexcept {
    const QpContext* qp = find(burst);
    return qp && qp->stream() ? qp->post.posted(burst.at.seq) : UINT32_MAX;
}

[[gnu::flatten]] Decision PortEngine::receive(Packet& packet) noexcept {
    if (packet.verify() == Csum::kBad || packet.at.ip_csum_bad)
        stats_.add(NUPA_STAT_rx_csum_bad);
    QpContext* qp = packet.at.l4 == L4::kTcp && packet.has_flow() ? find(packet) : nullptr;
    Decision decision = qp ? place(*qp, mrs_, packet) : Decision{};
    if (qp)
        count(*qp, decision, packet);
    return decision;
}

void PortEngine::silent(std::uint32_t qpn) noexcept {
    if (QpContext* qp = qps_.find(qpn))
        qp->pace.silent(qp->disorder.next());
}

void PortEngine::quiet_in_vain(std::uint32_t qpn) noexcept {
    if (QpContext* qp = qps_.find(qpn))
        qp->quiet.in_vain();
}

void PortEngine::count(QpContext& qp, const Decision& decision, const Packet& packet) noexcept {
    if (decision.sends)
        stats_.add(NUPA_STAT_completed_sends, decision.sends);
    if (decision.reason == Reason::kNoQp)
        return;
    const std::uint32_t bytes = packet.payload.bytes(), segments = packet.segments();
    if (decision.placed()) {
        stats_.add(NUPA_STAT_placed_segments, segments);
        stats_.add(NUPA_STAT_placed_bytes, bytes);
        qp.stats.add(NUPA_QP_STAT_placed_segments, segments);
        qp.stats.add(NUPA_QP_STAT_placed_bytes, bytes);
        if (decision.completed) {
            stats_.add(NUPA_STAT_completed_messages, decision.completed);
            qp.stats.add(NUPA_QP_STAT_completed_messages, decision.completed);
        }
        return;
    }
    nupa_stat stat;
    if (reason_stat(decision.reason, stat))
        stats_.add(stat, segments);
    if (decision.dropped())
        return;
    stats_.add(NUPA_STAT_qp_delivered_segments, segments);
    stats_.add(NUPA_STAT_qp_delivered_bytes, bytes);
    qp.stats.add(NUPA_QP_STAT_delivered_segments, segments);
    qp.stats.add(NUPA_QP_STAT_delivered_bytes, bytes);
    if (decision.reason >= Reason::kInconsistent)
        qp.stats.add(NUPA_QP_STAT_refused, segments);
}

}  // namespace nupa
