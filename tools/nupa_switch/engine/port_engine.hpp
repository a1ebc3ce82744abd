// SPDX-License-Identifier: BSD-3-Clause
// All that the engine keeps for one port: MRs, QP contexts, flows, counters.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "completion_queue.hpp"
#include "host_memory.hpp"
#include "mr.hpp"
#include "packet.hpp"
#include "placement.hpp"
#include "qp_table.hpp"
#include "srq.hpp"
#include "stats.hpp"

namespace nupa {

class PortEngine {
public:
    struct Limits {
        std::size_t qps_max = kQpsMaxDefault;
        std::size_t mrs_max = kMrsMaxDefault;
        std::size_t memory_bytes = kPortMemoryDefaultBytes;
    };
    // @memory and @stats outlive the engine.
    PortEngine(const HostMemory& memory, PortStats& stats, std::uint64_t hash_seed);
    PortEngine(const HostMemory& memory, PortStats& stats, std::uint64_t hash_seed, Limits limits);
    ~PortEngine();

    // Admin commands, as copied from the ring.  Each has taken full effect when it returns.
    nupa_admin_status mr_reg(std::uint32_t key, const nupa_cmd_mr& cmd) noexcept;
    // The same in parts: after NUPA_OK, mr_reg_go_on() until it answers.  One at a time.
    nupa_admin_status mr_reg_begin(std::uint32_t key, const nupa_cmd_mr& cmd) noexcept;
    std::optional<nupa_admin_status> mr_reg_go_on(std::uint32_t pages_max) noexcept;
    const Mr* mr(std::uint32_t key) const noexcept { return mrs_.find(key); }
    nupa_admin_status mr_dereg(std::uint32_t key) noexcept;
    nupa_admin_status qp_create(std::uint32_t qpn, const nupa_cmd_qp& cmd) noexcept;
    nupa_admin_status qp_destroy(std::uint32_t qpn) noexcept;
    nupa_admin_status cq_create(std::uint32_t id, const nupa_cmd_cq& cmd) noexcept;
    nupa_admin_status cq_destroy(std::uint32_t id) noexcept;
    nupa_admin_status srq_create(std::uint32_t id, const nupa_cmd_srq& cmd) noexcept;
    nupa_admin_status srq_destroy(std::uint32_t id) noexcept;
    const QpStats* qp_stats(std::uint32_t qpn) const noexcept;  // nullptr: no such QP
    void reset() noexcept;                                      // all of these are gone

    // A packet (or burst) the host sends, before it is cut: moves the marks of
    // its QP context.  @egress: the switch's port it goes to, or kNoPort.  Answers what the cutter
    // shall do; all false without a QP.
    TxRewrite transmit(const Packet& packet, std::uint16_t egress = 0) noexcept;

    // How may the host receive the segments of a burst: each by itself, or in runs that have one
    // fate?  A run to be placed is of one message or of one train, and has its option in ver 1.
    enum class Runs : std::uint8_t { kNone, kDelivered, kPlaced };
    Runs runs(const Packet& burst) const noexcept;
    // Payload bytes of such a run, if it is to be placed: of a stream, what is posted of it.
    std::uint32_t placed_run_max(const Packet& burst) const noexcept;

    // A segment (or run) the host is about to receive, after all faults.  Verifies an
    // unknown checksum (packet.csum is known afterwards), decides, copies
    // placed payload, counts.  When the answer is placed() only the header may be handed up.
    Decision receive(Packet& packet) noexcept;

    // The sender of @qpn fell silent while what was placed waited to be told to TCP.
    void silent(std::uint32_t qpn) noexcept;
    // A completion of @qpn was quiet, and the host did not look until it was told.
    void quiet_in_vain(std::uint32_t qpn) noexcept;

    // transmit() or receive() of @packets comes soon, of kLookaheadMax at most: what they will look
    // at begins to come into cache.  Nothing depends on it.
    void expect_transmit(std::span<const Packet> packets) const noexcept;
    void expect_receive(std::span<const Packet> packets) const noexcept;

    std::size_t qps() const noexcept { return qps_.size(); }
    std::size_t mrs() const noexcept { return mrs_.size(); }
    const MemoryBudget& budget() const noexcept { return budget_; }

private:
    // Whose connection is @packet of, which the host is to receive?  nullptr: of no QP's.
    QpContext* find(const Packet& packet) const noexcept;
    template <class FlowOf>
    void expect(std::span<const Packet> packets, FlowOf flow_of) const noexcept;
    void count(QpContext& qp, const Decision& decision, const Packet& packet) noexcept;

    const HostMemory& memory_;
    PortStats& stats_;
    MemoryBudget budget_;
    MrTable mrs_;
    CqTable cqs_;
    SrqTable srqs_;
    QpTable qps_;
};

}  // namespace nupa
