// SPDX-License-Identifier: BSD-3-Clause
// Flow to QP context: open addressing, linear probing, deletion by shifting back.
//
// A short tag of each slot lies in an array of its own that stays in cache, and a slot is one
// cache line: a look at one of many flows costs one miss.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flow.hpp"
#include "large_array.hpp"

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
    using Tag = std::uint16_t;  // 0: the slot is free
    struct alignas(64) Slot {
        FlowKey flow;
        std::uint64_t hash;
        QpContext* qp;
    };
    static constexpr std::size_t kSlotsMin = 64;

    static Tag tag_of(std::uint64_t hash) noexcept {
        return static_cast<Tag>(hash >> 48 | 1);  // position is of the low bits
    }
    std::size_t mask() const noexcept { return tags_.size() - 1; }
    std::size_t probe(const FlowKey& flow, std::uint64_t hash) const noexcept;
    void put(std::size_t at, const Slot& slot) noexcept;
    void grow();

    LargeArray<Tag> tags_;
    LargeArray<Slot> slots_;
    std::size_t count_ = 0;
    std::uint64_t seed_;
    mutable FlowKey last_flow_{};  // bursts ask for the same flow again and again
    mutable QpContext* last_qp_ = nullptr;
};

}  // namespace nupa
