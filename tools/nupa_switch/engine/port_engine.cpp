// SPDX-License-Identifier: BSD-3-Clause
#include "port_engine.hpp"

#include <new>

namespace nupa {

PortEngine::PortEngine(const HostMemory& memory, PortStats& stats, std::uint64_t hash_seed)
    : PortEngine(memory, stats, hash_seed, Limits{}) {}

PortEngine::PortEngine(const HostMemory& memory, PortStats& stats, std::uint64_t hash_seed,
                       Limits limits)
    : memory_(memory), stats_(stats), limits_(limits), mrs_(limits.mrs_max), flows_(hash_seed) {}

PortEngine::~PortEngine() = default;

nupa_admin_status PortEngine::mr_reg(std::uint32_t key, const nupa_cmd_mr& cmd) noexcept {
    return mrs_.reg(memory_, key, cmd);
}

nupa_admin_status PortEngine::mr_dereg(std::uint32_t key) noexcept { return mrs_.dereg(key); }

nupa_admin_status PortEngine::qp_create(std::uint32_t qpn, const nupa_cmd_qp& cmd) noexcept try {
    if (qps_.contains(qpn))
        return NUPA_E_EXISTS;
    if (qps_.size() >= limits_.qps_max)
        return NUPA_E_NOSPACE;
    auto qp = std::make_unique<QpContext>();
    if (const nupa_admin_status status = qp->init(memory_, qpn, cmd); status != NUPA_OK)
        return status;
    const auto [it, inserted] = qps_.emplace(qpn, std::move(qp));
    try {
        if (flows_.insert(it->second->flow(), it->second.get()))
            return NUPA_OK;
        qps_.erase(it);
        return NUPA_E_EXISTS;
    } catch (const std::bad_alloc&) {
        qps_.erase(it);
        return NUPA_E_NOSPACE;
    }
} catch (const std::bad_alloc&) {
    return NUPA_E_NOSPACE;
}

nupa_admin_status PortEngine::qp_destroy(std::uint32_t qpn) noexcept {
    const auto it = qps_.find(qpn);
    if (it == qps_.end())
        return NUPA_E_NOENT;
    flows_.erase(it->second->flow());
    qps_.erase(it);
    return NUPA_OK;
}

const QpStats* PortEngine::qp_stats(std::uint32_t qpn) const noexcept {
    const auto it = qps_.find(qpn);
    return it == qps_.end() ? nullptr : &it->second->stats;
}

void PortEngine::reset() noexcept {
    flows_.clear();
    qps_.clear();
    mrs_.clear();
}

TxRewrite PortEngine::transmit(const Packet& packet) noexcept {
    if (flows_.size() == 0 || !packet.at.tcp())
        return {};
    QpContext* qp = flows_.find(packet.flow().reversed());
    if (!qp)
        return {};
    qp->watch_tx(packet);
    const std::uint32_t bytes = packet.payload.bytes();
    if (bytes) {
        qp->stats.add(NUPA_QP_STAT_tx_segments,
                      packet.tso ? (bytes + packet.mss - 1) / packet.mss : 1);
        qp->stats.add(NUPA_QP_STAT_tx_bytes, bytes);
    }
    return qp->rewrite();
}

PortEngine::Runs PortEngine::runs(const Packet& burst) const noexcept {
    const Headers& at = burst.at;
    if (flows_.size() == 0 || !flows_.find(burst.flow()))
        return Runs::kDelivered;
    tcp_bth b;
    const bool one = tcp_bth_find(burst.header.data() + at.options_at, at.option_bytes(), at.seq,
                                  burst.payload.bytes(), &b, nullptr) == TCP_BTH_OK &&
                     b.ver == 1 && b.opcode != TCP_BTH_OP_SEND_TRAIN;
    return one ? Runs::kPlaced : Runs::kNone;
}

Decision PortEngine::receive(Packet& packet) noexcept {
    if (packet.verify() == Csum::kBad || packet.at.ip_csum_bad)
        stats_.add(NUPA_STAT_rx_csum_bad);
    if (flows_.size() == 0 || packet.at.l4 != L4::kTcp || !packet.has_flow())
        return {};
    QpContext* qp = flows_.find(packet.flow());
    if (!qp)
        return {};
    const Decision decision = place(*qp, mrs_, packet);
    count(*qp, decision, packet);
    return decision;
}

void PortEngine::silent(std::uint32_t qpn) noexcept {
    const auto it = qps_.find(qpn);
    if (it != qps_.end())
        it->second->pace.silent(it->second->disorder.next());
}

void PortEngine::count(QpContext& qp, const Decision& decision, const Packet& packet) noexcept {
    if (decision.reason == Reason::kNoQp)
        return;
    const std::uint32_t bytes = packet.payload.bytes(), segments = packet.segments();
    if (decision.placed()) {
        stats_.add(NUPA_STAT_placed_segments, segments);
        stats_.add(NUPA_STAT_placed_bytes, bytes);
        qp.stats.add(NUPA_QP_STAT_placed_segments, segments);
        qp.stats.add(NUPA_QP_STAT_placed_bytes, bytes);
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
