// SPDX-License-Identifier: BSD-3-Clause
#include "flow_table.hpp"

namespace nupa {

// The flow's slot, or the free one where it would go.  The table is never full.
std::size_t FlowTable::probe(const FlowKey& flow, std::uint64_t hash) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = hash & mask;
    while (slots_[i].qp && !(slots_[i].hash == hash && slots_[i].flow == flow))
        i = (i + 1) & mask;
    return i;
}

void FlowTable::grow() {
    std::vector<Slot> bigger(slots_.empty() ? kSlotsMin : slots_.size() * 2);
    slots_.swap(bigger);
    for (const Slot& s : bigger)
        if (s.qp)
            slots_[probe(s.flow, s.hash)] = s;
}

bool FlowTable::insert(const FlowKey& flow, QpContext* qp) {
    if ((count_ + 1) * 2 > slots_.size())
        grow();
    const std::uint64_t hash = flow.hash(seed_);
    Slot& slot = slots_[probe(flow, hash)];
    if (slot.qp)
        return false;
    slot = {flow, hash, qp};
    count_++;
    last_flow_ = {}, last_qp_ = nullptr;
    return true;
}

bool FlowTable::erase(const FlowKey& flow) noexcept {
    if (slots_.empty())
        return false;
    const std::size_t mask = slots_.size() - 1;
    std::size_t hole = probe(flow, flow.hash(seed_));
    if (!slots_[hole].qp)
        return false;
    // Whatever probed past the hole moves back into it.
    for (std::size_t i = (hole + 1) & mask; slots_[i].qp; i = (i + 1) & mask) {
        const std::size_t home = slots_[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            slots_[hole] = slots_[i];
            hole = i;
        }
    }
    slots_[hole] = {};
    count_--;
    last_flow_ = {}, last_qp_ = nullptr;
    return true;
}

QpContext* FlowTable::find(const FlowKey& flow) const noexcept {
    if (count_ == 0)
        return nullptr;
    if (flow == last_flow_)
        return last_qp_;
    const Slot& slot = slots_[probe(flow, flow.hash(seed_))];
    last_flow_ = flow;
    last_qp_ = slot.qp;
    return slot.qp;
}

void FlowTable::clear() noexcept {
    slots_.clear();
    count_ = 0;
    last_flow_ = {}, last_qp_ = nullptr;
}

}  // namespace nupa
