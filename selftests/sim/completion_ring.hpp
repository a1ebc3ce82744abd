// SPDX-License-Identifier: BSD-3-Clause
// A completion queue of receives, which host and switch write to.
#pragma once

#include <rdma/ib_user_verbs.h>
#include <cstdint>
#include <vector>

#include <tcp_qp/nupa_hw.h>
#include "ram.hpp"

namespace sim {

class CompletionRing {
public:
    // With room for more than is ever posted.
    explicit CompletionRing(Ram& ram);

    void polled(std::uint32_t count) noexcept;  // by the application, in all
    void post() noexcept;                       // by the host; what it says does not matter
    void own(bool host) noexcept;               // another processor of the host writes something
    bool owned() const noexcept { return owned_; }
    void wait() noexcept;  // somebody falls asleep until one comes
    bool waited_for() const noexcept { return waited_for_; }
    void wake() noexcept;  // by the host
    // The switch says that it wakes who waits.  False: it had to leave them alone.
    bool woken() noexcept;
    // What the switch wrote as the next one: the mirror is brought up to date.
    ib_uverbs_wc taken() noexcept;
    // Host, switch and application agree on how many there are.
    bool agrees() const noexcept;

    nupa_cmd_cq cmd{};

private:
    static constexpr std::uint32_t kEntries = 16;
    static constexpr std::uint32_t kProducerAt = 128, kConsumerAt = 256, kElementsAt = 384;

    Ram& ram_;
    std::uint64_t page_;
    std::uint32_t count_ = 0;
    bool owned_ = false, waited_for_ = false;
};

}  // namespace sim
