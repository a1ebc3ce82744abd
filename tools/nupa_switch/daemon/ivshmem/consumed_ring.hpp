// SPDX-License-Identifier: BSD-3-Clause
// A ring of entries that a host produces.
#pragma once

#include <cstdint>

#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

// Our end of a nupa_ring_ctl: private indices, never read back.
class ConsumedRing {
public:
    ConsumedRing(nupa_ring_ctl& ctl, uint32_t entries) noexcept;

    // Entries the host has produced and we have not taken.  More than the ring holds: the host
    // lies.
    [[nodiscard]] uint32_t pending() noexcept;
    [[nodiscard]] bool broken() const noexcept { return produced_ - taken_ > entries_; }
    [[nodiscard]] uint32_t index(uint32_t ahead) const noexcept {
        return (taken_ + ahead) & (entries_ - 1);
    }
    void take(uint32_t count) noexcept { taken_ += count; }
    // Gives everything taken back to the host; true when it wants an interrupt.
    bool publish() noexcept;
    // Asks for a doorbell at the next entry; true when one slipped in meanwhile.
    bool rearm() noexcept;

private:
    nupa_ring_ctl* ctl_;
    uint32_t entries_;
    uint32_t produced_ = 0;  // as last seen
    uint32_t taken_ = 0;
    uint32_t published_ = 0;
};

}  // namespace nupa::daemon
