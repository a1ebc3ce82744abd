// SPDX-License-Identifier: BSD-3-Clause
#include "length_tables.hpp"

#include <algorithm>
#include <new>

namespace nupa {

std::uint32_t MixedTrain::message(std::uint32_t offset) const noexcept {
    const auto* const end = at.data() + all.messages + 1;
    const auto* const behind = std::upper_bound(at.data(), end, offset);
    return static_cast<std::uint32_t>(behind - at.data()) - 1;
}

void MixedTrainsDelete::operator()(MixedTrains* trains) const noexcept {
    delete trains;
    budget->give_back(sizeof(MixedTrains));
}

// A free one; those whose train was passed up are.
MixedTrain* LengthTables::free_one(std::uint32_t next) noexcept {
    if (!trains_) {
        if (!budget_ || !budget_->take(sizeof(MixedTrains)))
            return nullptr;
        trains_ = {new (std::nothrow) MixedTrains{}, MixedTrainsDelete{budget_}};
        if (!trains_) {
            budget_->give_back(sizeof(MixedTrains));
            return nullptr;
        }
    }
    for (MixedTrain& train : *trains_)
        if (train.end() - next - 1 >= kUnackedMaxBytes)  // at or behind it, or of long ago
            train.all.messages = 0;
    const auto free = std::find_if(trains_->begin(), trains_->end(),
                                   [](const MixedTrain& t) { return t.all.messages == 0; });
    return free == trains_->end() ? nullptr : &*free;
}

void LengthTables::learn(const Payload& payload, std::uint8_t opcode, std::uint16_t msn,
                         std::uint32_t start, std::uint32_t next) noexcept {
    const bool writes = opcode == TCP_BTH_OP_TARGETS;
    std::array<std::uint8_t, TCP_BTH_TABLE_MAX_BYTES> bytes;
    std::array<std::uint32_t, TCP_BTH_TABLE_MAX_WORDS> words;
    tcp_bth_mixed all;
    if (payload.bytes() > bytes.size())
        return;
    payload.copy_to(reinterpret_cast<std::byte*>(bytes.data()));  // its sender may change it
    if (!(writes ? tcp_bth_targets_read : tcp_bth_mixed_read)(bytes.data(), payload.bytes(),
                                                              words.data(), &all))
        return;
    MixedTrain* train = free_one(next);
    if (!train)
        return;
    train->start = start, train->msn = msn, train->all = all, train->writes = writes;
    train->rkey = writes ? tcp_bth_targets_rkey(words.data()) : 0;
    std::uint32_t at = 0;
    for (std::uint32_t i = 0; i < all.messages; i++) {
        train->at[i] = at;
        if (writes)
            train->va[i] = tcp_bth_target_va(words.data(), i);
        at += writes ? tcp_bth_target_length(words.data(), i) : tcp_bth_mixed_length(words[i]);
    }
    train->at[all.messages] = at;
}

const MixedTrain* LengthTables::find(const tcp_bth& b) const noexcept {
    if (!trains_)
        return nullptr;
    const bool writes = tcp_bth_is_write(b.opcode);
    for (const MixedTrain& t : *trains_)
        if (t.all.messages && t.writes == writes && t.start == b.start_seq && t.msn == b.msn &&
            t.all.bytes == b.ext4 && t.all.check == b.length)
            return &t;
    return nullptr;
}

}  // namespace nupa
