// SPDX-License-Identifier: BSD-3-Clause
// A transmit ring: entries are copied once, checked, and translated.
#pragma once

#include <array>
#include <span>

#include "engine/host_memory.hpp"
#include "engine/packet.hpp"
#include "ivshmem/consumed_ring.hpp"
#include "ivshmem/index_watch.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

class TxQueue {
public:
    enum class Next : uint8_t { kEmpty, kPacket, kBroken };

    // @flags: NUPA_TXQ_F_* that the port has.
    static nupa_admin_status check(const HostMemory& memory, const nupa_cmd_queue& cmd,
                                   uint32_t flags) noexcept;
    // @cmd passed check().
    TxQueue(const HostMemory& memory, nupa_ring_ctl& ctl, const nupa_cmd_queue& cmd,
            uint64_t watch_max_ns) noexcept;

    // Copies the next packet's descriptors; context() and buffers() are theirs until the next call.
    Next next() noexcept;
    [[nodiscard]] const nupa_tx_ctx& context() const noexcept { return context_; }
    [[nodiscard]] std::span<const Bytes> buffers() const noexcept {
        return {buffers_.data(), context_.bufs};
    }
    [[nodiscard]] const char* reason() const noexcept { return reason_; }  // after kBroken
    ConsumedRing& ring() noexcept { return ring_; }
    // Its host lets the producer index be looked at.
    [[nodiscard]] bool may_be_watched() const noexcept { return may_be_watched_; }
    IndexWatch& watch() noexcept { return watch_; }

private:
    Next broken(const char* reason) noexcept;

    const HostMemory& memory_;
    const std::byte* entries_;
    ConsumedRing ring_;
    IndexWatch watch_;
    bool may_be_watched_;
    nupa_tx_ctx context_{};
    std::array<Bytes, NUPA_TX_FRAGS_MAX> buffers_;
    const char* reason_ = "";
};

// Is @entries a size a ring may have?
bool valid_ring_entries(uint32_t entries) noexcept;

}  // namespace nupa::daemon
