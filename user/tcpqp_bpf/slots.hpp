// SPDX-License-Identifier: BSD-3-Clause
// Who has which slot, what each user may have, and generations.  Any thread may call.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "base/bpf_abi.h"
#include "base/fd.hpp"

namespace tcpqp::bpf {

class Slots {
public:
    using Place = tcpqp_bpf_admitted;

    explicit Slots(uint32_t count) : slots_(count), free_(count) {}

    // For a connection that @uid wants admitted.  Throws: EDQUOT, it has its share; ENOSPC.
    [[nodiscard]] Place take(uid_t uid);
    // It is admitted, and @map its memory, which is taken over.  False: it is over already.
    [[nodiscard]] bool hold(const Place& place, Fd& map) noexcept;
    // The program says that it is over.  Its memory, once, if it was held.
    [[nodiscard]] Fd end(const Place& place) noexcept;
    // Nobody can name it any more.  @kept: its memory, by its Program::id_of(), may be held still,
    // and counts as its user's until it is not among the living; 0: it is not.
    void release(const Place& place, uint32_t kept);
    // Memory that is not among the @living, all that is, sorted, is nobody's any more.
    void count_again(const std::function<std::vector<uint32_t>()>& living);

private:
    enum class State : uint8_t {
        kFree,
        kTaken,  // is being admitted
        kOver,   // ... in vain, as the connection has ended
        kHeld,
        kEnded,
    };
    struct Slot {
        State state = State::kFree;
        uid_t uid = 0;
        uint64_t generation = 0;
        Fd map;  // if held
    };

    struct Kept {
        uid_t uid;
        uint32_t map;
    };

    [[nodiscard]] Slot* find(const Place& place) noexcept;
    [[nodiscard]] bool has_share(uid_t uid) const noexcept;
    void give_back(uid_t uid) noexcept;

    std::mutex lock_;
    uint64_t generation_ = 0;
    std::vector<Slot> slots_;
    size_t free_;  // neither in use, nor spent on what is kept
    std::map<uid_t, size_t> used_;
    std::vector<Kept> kept_;
};

}  // namespace tcpqp::bpf
