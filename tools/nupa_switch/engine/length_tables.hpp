// SPDX-License-Identifier: BSD-3-Clause
// What LENGTHS and TARGETS messages said of the mixed trains that are on their way.
#pragma once

#include <tcp_qp/tcp_bth_mixed.h>
#include <array>
#include <cstdint>
#include <memory>

#include "budget.hpp"
#include "limits.hpp"
#include "packet.hpp"

namespace nupa {

// One train: where its messages begin.
struct MixedTrain {
    std::uint32_t start;  // sequence number of its first byte
    std::uint16_t msn;    // of its first message
    tcp_bth_mixed all;    // .messages == 0: none
    // Of each message the offset from @start; behind the last one's that of the end.
    std::array<std::uint32_t, TCP_BTH_MIXED_MAX_MESSAGES + 1> at;
    // Of WRITEs where each of them goes.
    bool writes;
    std::uint32_t rkey;
    std::array<std::uint64_t, TCP_BTH_TARGETS_MAX_MESSAGES> va;

    std::uint32_t end() const noexcept { return start + all.bytes; }
    // The number of the message that has byte @offset, which is of the train.
    std::uint32_t message(std::uint32_t offset) const noexcept;
};

using MixedTrains = std::array<MixedTrain, kMixedTrainsMax>;

// Frees them, and gives their memory back.
struct MixedTrainsDelete {
    MemoryBudget* budget;
    void operator()(MixedTrains* trains) const noexcept;
};

// A table may be lost, or come after its train: then its train is delivered, and so is what the
// host has not read the table of.  The host reads it from the stream, and believes no option that
// names another one.
class LengthTables {
public:
    // Memory is taken from @budget, when the first one is learnt.
    void use(MemoryBudget& budget) noexcept { budget_ = &budget; }

    // @payload, the whole of @opcode's message with @msn, goes up to the host; its train begins at
    // @start.  All before @next is passed up.
    void learn(const Payload& payload, std::uint8_t opcode, std::uint16_t msn, std::uint32_t start,
               std::uint32_t next) noexcept;
    // The train that option @b, of a mixed train, names; nullptr: not known.
    const MixedTrain* find(const tcp_bth& b) const noexcept;

private:
    MixedTrain* free_one(std::uint32_t next) noexcept;

    MemoryBudget* budget_ = nullptr;
    std::unique_ptr<MixedTrains, MixedTrainsDelete> trains_;
};

}  // namespace nupa
