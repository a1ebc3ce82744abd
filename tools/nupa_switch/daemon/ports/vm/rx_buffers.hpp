// SPDX-License-Identifier: BSD-3-Clause
// What delivered payload is written to: the fill ring of a receive queue and, if its host gives
// one, its ring of long buffers.  An skb answers to its socket for whole buffers, so short runs
// get short ones.
//
// A run holds what it needs as it grows, and writes when it is finished: buffers are used strictly
// in ring order, though runs grow side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/host_memory.hpp"
#include "engine/packet.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

struct BufferCount {
    uint32_t longs = 0;
    uint32_t shorts = 0;
    [[nodiscard]] constexpr uint32_t all() const noexcept { return longs + shorts; }
    constexpr bool operator==(const BufferCount&) const noexcept = default;
};

inline constexpr uint32_t kEmptyPart =
    8;  // one part in so many of a run's bytes, see best_buffers()

// The buffers for a run of @bytes, were there enough of both kinds; long_bytes is 0 where there are
// none.  Its last bytes come in a long one if that leaves no more than a kEmptyPart of the run's
// length unused, or if short ones would be more than a packet may have.
constexpr BufferCount best_buffers(uint32_t bytes, uint32_t short_bytes,
                                   uint32_t long_bytes) noexcept {
    BufferCount n;
    uint32_t rest = bytes;
    if (long_bytes && bytes >= long_bytes - long_bytes / kEmptyPart) {
        n.longs = bytes / long_bytes;
        rest = bytes % long_bytes;
    }
    n.shorts = (rest + short_bytes - 1) / short_bytes;
    if (rest && long_bytes &&
        ((long_bytes - rest) * kEmptyPart <= bytes || n.all() > NUPA_RX_BUFS_PER_PACKET_MAX))
        return {n.longs + 1, 0};
    return n;
}

// One ring of buffers that the host fills.
class FillRing {
public:
    FillRing() = default;  // of no buffers
    // @ring is of @entries, in host memory.
    FillRing(const HostMemory& memory, const std::byte* ring, uint32_t entries, uint32_t buf_bytes,
             uint32_t& prod, uint32_t& cons) noexcept;

    [[nodiscard]] uint32_t buf_bytes() const noexcept { return buf_bytes_; }
    // Buffers that nobody holds; the host's index is looked at only if fewer than @wanted are
    // known.
    uint32_t unheld(uint32_t wanted) noexcept;
    void hold(uint32_t bufs) noexcept { held_ += bufs; }
    void let_go(uint32_t bufs) noexcept { held_ -= bufs; }
    // The next buffer; null: it is outside host memory.
    std::byte* next() noexcept;
    void publish() noexcept;
    [[nodiscard]] bool broken() const noexcept {
        return broken_;
    }  // the host's index is impossible

private:
    const HostMemory* memory_ = nullptr;
    const std::byte* ring_ = nullptr;
    uint32_t* host_prod_ = nullptr;
    uint32_t* shown_cons_ = nullptr;
    uint32_t entries_ = 0;
    uint32_t buf_bytes_ = 0;
    uint32_t seen_ = 0;  // host's producer index, as last read
    uint32_t cons_ = 0;
    uint32_t held_ = 0;
    bool broken_ = false;
};

class RxBuffers {
public:
    enum class Room : uint8_t { kThere, kNone, kBroken };

    static nupa_admin_status check(const HostMemory& memory, const nupa_cmd_queue& cmd) noexcept;
    // @cmd passed check().
    RxBuffers(const HostMemory& memory, nupa_rxq_ctl& ctl, const nupa_cmd_queue& cmd) noexcept;

    // Of the largest buffers.
    [[nodiscard]] uint32_t buf_bytes() const noexcept;
    // How many payload bytes of a burst of @bytes each of its runs may have, @span if there is
    // room for them, and 0 if there is hardly any.
    uint32_t span(uint32_t bytes, uint32_t span, uint32_t mss) noexcept;
    // Makes what a run holds what it needs for @bytes, which is more than before; unless there is
    // room @held stays what it is.
    Room hold(BufferCount& held, uint32_t bytes) noexcept;
    void let_go(BufferCount& held) noexcept;
    void publish() noexcept;

    // Writes one run's payload, piece by piece, into what it @held.
    class Writer {
    public:
        Writer(RxBuffers& buffers, const BufferCount& held) noexcept
            : buffers_(buffers), left_(held) {}
        // False: a buffer is outside host memory.
        bool write(Bytes piece) noexcept;

    private:
        bool next() noexcept;

        RxBuffers& buffers_;
        BufferCount left_;
        std::byte* to_ = nullptr;
        uint32_t room_ = 0;
    };

private:
    std::optional<BufferCount> choose(uint32_t bytes) noexcept;

    FillRing short_;
    FillRing long_;
};

}  // namespace nupa::daemon
