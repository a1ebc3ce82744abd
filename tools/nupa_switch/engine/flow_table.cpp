// SPDX-License-Identifier: BSD-3-Clause
#include "flow_table.hpp"

namespace nupa {

// The flow's slot, or the free one where it would go.  The table is never full.
std::size_t FlowTable::probe(const FlowKey& flow, std::uint64_t hash) const noexcept {
    const Tag tag = tag_of(hash);
    std::size_t i = hash & mask();
    __builtin_prefetch(&slots_[i]);  // with its tag, not after it
    while (tags_[i] && !(tags_[i] == tag && slots_[i].hash == hash && slots_[i].flow == flow))
        i = (i + 1) & mask();
    return i;
}

void FlowTable::put(std::size_t at, const Slot& slot) noexcept {
    tags_[at] = tag_of(slot.hash);
    slots_[at] = slot;
}

void FlowTable::grow() {
    const std::size_t size = tags_.empty() ? kSlotsMin : tags_.size() * 2;
    LargeArray<Tag> tags(size);
    LargeArray<Slot> slots(size);
    slots_.swap(slots);
    tags_.swap(tags);
    for (std::size_t i = 0; i < tags.size(); i++)
        if (tags[i])
            put(probe(slots[i].flow, slots[i].hash), slots[i]);
}

bool FlowTable::insert(const FlowKey& flow, QpContext* qp) {
    if ((count_ + 1) * 8 > tags_.size() * 7)
        grow();
    const std::uint64_t hash = flow.hash(seed_);
    const std::size_t at = probe(flow, hash);
    if (tags_[at])
        return false;
    put(at, {flow, hash, qp});
    count_++;
    last_flow_ = {}, last_qp_ = nullptr;
    return true;
}

bool FlowTable::erase(const FlowKey& flow) noexcept {
    if (tags_.empty())
        return false;
    std::size_t hole = probe(flow, flow.hash(seed_));
    if (!tags_[hole])
        return false;
    // Whatever probed past the hole moves back into it.
    for (std::size_t i = (hole + 1) & mask(); tags_[i]; i = (i + 1) & mask()) {
        const std::size_t home = slots_[i].hash & mask();
        if (((i - home) & mask()) >= ((i - hole) & mask())) {
            put(hole, slots_[i]);
            hole = i;
        }
    }
    tags_[hole] = 0;
    count_--;
    last_flow_ = {}, last_qp_ = nullptr;
    return true;
}

QpContext* FlowTable::find(const FlowKey& flow) const noexcept {
    if (count_ == 0)
        return nullptr;
    if (flow == last_flow_)
        return last_qp_;
    const std::size_t at = probe(flow, flow.hash(seed_));
    last_flow_ = flow;
    last_qp_ = tags_[at] ? slots_[at].qp : nullptr;
    return last_qp_;
}

void FlowTable::clear() noexcept {
    tags_.clear();
    slots_.clear();
    count_ = 0;
    last_flow_ = {}, last_qp_ = nullptr;
}

}  // namespace nupa
