// SPDX-License-Identifier: BSD-3-Clause
// The QP contexts of one port, by flow and by number.
//
// Flows lie apart from the contexts and close together: to look at any of 100,000 costs a miss of
// the second level cache, not of the TLB, too.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "budget.hpp"
#include "hash_index.hpp"
#include "limits.hpp"
#include "pool.hpp"
#include "qp.hpp"

namespace nupa {

class QpTable {
public:
    QpTable(std::uint64_t seed, MemoryBudget& budget, std::size_t max = kQpsMaxDefault) noexcept
        : budget_(budget), seed_(seed), max_(max) {}

    nupa_admin_status create(const HostMemory& memory, std::uint32_t qpn,
                             const nupa_cmd_qp& cmd) noexcept;
    // When it returns nothing finds the context any more.
    nupa_admin_status destroy(std::uint32_t qpn) noexcept;

    QpContext* find(const FlowKey& flow) const noexcept {
        if (last_ && last_->flow == flow)
            return last_->qp;
        const std::uint32_t n = flows_.find(
            hash(flow), [&](std::uint32_t number) { return names_[number].flow == flow; });
        if (n == HashIndex::kNone)
            return nullptr;
        last_ = &names_[n];
        return last_->qp;
    }
    // Which names find() will probably come to, of kLookaheadMax flows at most.
    using Guesses = std::array<std::uint32_t, kLookaheadMax>;
    // find() of each comes soon: their cache misses begin here, so that they overlap.
    void expect(std::span<const FlowKey> flows, Guesses& guesses) const noexcept;
    // And then what is found will be used.
    void expect_contexts(std::span<const std::uint32_t> guesses) const noexcept {
        for (const std::uint32_t n : guesses)
            if (n != HashIndex::kNone)
                names_[n].qp->prefetch();
    }

    QpContext* find(std::uint32_t qpn) const noexcept;
    std::size_t size() const noexcept { return flows_.size(); }
    void clear() noexcept;

private:
    struct alignas(64) Name {
        FlowKey flow;
        QpContext* qp = nullptr;
        std::uint32_t context = 0;    // its number
        std::uint32_t footprint = 0;  // bytes of the port's memory
    };

    std::uint32_t hash(const FlowKey& flow) const noexcept {
        return static_cast<std::uint32_t>(flow.hash(seed_));
    }
    std::uint32_t number(std::uint32_t qpn) const noexcept;
    void forget(std::uint32_t name) noexcept;

    MemoryBudget& budget_;
    Pool<Name> names_;
    Pool<QpContext> qps_;
    HashIndex flows_;                     // of names
    HashIndex numbers_;                   // the same by qpn
    mutable const Name* last_ = nullptr;  // bursts ask for the same flow again and again
    std::uint64_t seed_;
    std::size_t max_;
};

}  // namespace nupa
