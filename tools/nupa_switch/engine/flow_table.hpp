// SPDX-License-Identifier: BSD-3-Clause
// Flow to QP context: open addressing, linear probing, deletion by shifting back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "flow.hpp"

namespace nupa {

class QpContext;

class FlowTable {
public:
    explicit FlowTable(std::uint64_t seed) noexcept : seed_(seed) {}

    // False: the flow is there already.  May throw std::bad_alloc; the table is unchanged then.
    bool insert(const FlowKey& flow, QpContext* qp);
    bool erase(const FlowKey& flow) noexcept;
    QpContext* find(const FlowKey& flow) const noexcept;
    std::size_t size() const noexcept { return count_; }
    void clear() noexcept;

private:
    struct Slot {
        FlowKey flow;
        std::uint64_t hash;
        QpContext* qp;  // nullptr: free
    };
    static constexpr std::size_t kSlotsMin = 64;

    std::size_t probe(const FlowKey& flow, std::uint64_t hash) const noexcept;
    void grow();

    std::vector<Slot> slots_;
    std::size_t count_ = 0;
    std::uint64_t seed_;
    mutable FlowKey last_flow_{};  // bursts ask for the same flow again and again
    mutable QpContext* last_qp_ = nullptr;
};

}  // namespace nupa
