// SPDX-License-Identifier: BSD-3-Clause
// Cuts a transmit packet into wire segments and writes tcp_bth ver 0 on each.
#pragma once

#include <cstdint>

#include "packet.hpp"

namespace nupa {

// What the sender's QP context wants done to the flow's options.
struct TxRewrite {
    bool v0 = false;    // NUPA_QP_F_TX_V0
    bool icrc = false;  // NUPA_QP_F_ICRC
};

// One pass over one packet.  A packet that is not a burst comes out once,
// unchanged but for its option.  The packet must stay alive and unchanged.
// With @span, a multiple of the burst's mss, it comes in runs of so many payload bytes, whose
// option stays as it is: what merging the segments would make of them.
//
//   Cutter cutter(packet, rewrite);
//   while (cutter.next(segment)) ...
//
// @segment is a reusable scratch packet: its payload points where the burst's
// does, nothing is allocated.  It may be moved from (own() it first to keep it).
class Cutter {
public:
    Cutter(const Packet& packet, TxRewrite rewrite) noexcept : Cutter(packet, rewrite, 0) {}
    Cutter(const Packet& packet, std::uint32_t span) noexcept : Cutter(packet, {}, span) {}
    bool next(Packet& segment) noexcept;
    std::uint32_t segments() const noexcept { return packet_.segments(); }  // in all

private:
    Cutter(const Packet& packet, TxRewrite rewrite, std::uint32_t span) noexcept;
    void copy_header(Packet& segment) noexcept;
    void patch_header(Packet& segment, std::uint32_t bytes, bool last) noexcept;
    void patch_option(Packet& segment, std::uint32_t bytes) noexcept;
    void slice(Packet& segment, std::uint32_t bytes) noexcept;

    const Packet& packet_;
    TxRewrite rewrite_;
    bool has_v1_ = false;  // the option may become ver 0
    std::uint16_t option_at_ = 0;
    tcp_bth option_{};          // of the burst
    std::uint32_t span_;        // payload bytes of each piece
    std::uint32_t offset_ = 0;  // payload bytes cut so far
    std::uint32_t index_ = 0;   // of the next segment
    bool done_ = false;
    std::size_t piece_ = 0;  // next payload piece and how much of it is used
    std::size_t piece_used_ = 0;
};

}  // namespace nupa
