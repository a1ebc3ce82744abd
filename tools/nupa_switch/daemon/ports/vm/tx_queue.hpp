// SPDX-License-Identifier: BSD-3-Clause
// A transmit ring: entries are copied once, checked, and translated.
#pragma once

#include <array>
#include <span>

#include "engine/host_memory.hpp"
#include "engine/packet.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

// The switch's end of a nupa_ring_ctl: private indices, never read back.
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

class TxQueue {
public:
    enum class Next : uint8_t { kEmpty, kPacket, kBroken };

    static nupa_admin_status check(const HostMemory& memory, const nupa_cmd_queue& cmd) noexcept;
    // @cmd passed check().
    TxQueue(const HostMemory& memory, nupa_ring_ctl& ctl, const nupa_cmd_queue& cmd) noexcept;

    // Copies the next packet's descriptors; context() and buffers() are theirs until the next call.
    Next next() noexcept;
    [[nodiscard]] const nupa_tx_ctx& context() const noexcept { return context_; }
    [[nodiscard]] std::span<const Bytes> buffers() const noexcept {
        return {buffers_.data(), context_.bufs};
    }
    [[nodiscard]] const char* reason() const noexcept { return reason_; }  // after kBroken
    ConsumedRing& ring() noexcept { return ring_; }

private:
    Next broken(const char* reason) noexcept;

    const HostMemory& memory_;
    const std::byte* entries_;
    ConsumedRing ring_;
    nupa_tx_ctx context_{};
    std::array<Bytes, NUPA_TX_FRAGS_MAX> buffers_;
    const char* reason_ = "";
};

// Is @entries a size a ring may have?
bool valid_ring_entries(uint32_t entries) noexcept;

}  // namespace nupa::daemon
