// SPDX-License-Identifier: BSD-3-Clause
// Wakes us when the BPF program sees what we wait for: a ring of the kernel's, of
// which only its being readable matters.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/bpf_abi.h"
#include "base/fd.hpp"

namespace tcpqp::stock {

class Wakeup {
public:
    // Nothing: @ring can't be mapped.
    static std::optional<Wakeup> open(Fd ring) noexcept;
    Wakeup(Wakeup&& other) noexcept;
    Wakeup& operator=(Wakeup&&) = delete;
    ~Wakeup();

    // fd() will be readable once @what, TCPQP_BPF_AWAITS_*, came.  The caller looks once
    // more after this, and before it sleeps.
    void await(tcpqp_bpf_slot& slot, uint32_t what) noexcept;
    [[nodiscard]] int fd() const noexcept { return ring_.get(); }

private:
    // As the kernel lays them out, each in a page of its own.
    using Position = std::atomic<unsigned long>;
    static_assert(Position::is_always_lock_free);

    Wakeup(Fd ring, void* consumer, void* producer) noexcept;

    Fd ring_;
    Position* consumer_;
    const Position* producer_;
};

}  // namespace tcpqp::stock
