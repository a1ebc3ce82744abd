// SPDX-License-Identifier: BSD-3-Clause
// HW-GRO: consecutive segments of one flow become one receive completion.
//
// The merger keeps headers and counts; the payload of delivered segments is
// copied into fill buffers by the caller as each segment joins, so nothing
// here points into a sender's memory.
//
//   if (merger.active() && !merger.fits(packet, decision)) emit(merger.finish());
//   if (merger.active()) merger.append(packet, decision); else merger.start(packet, decision);
//   copy payload at the run's end, unless placed
//   if (merger.closed()) emit(merger.finish());
#pragma once

#include <array>
#include <cstdint>

#include "packet.hpp"
#include "placement.hpp"

namespace nupa {

struct Merged {
    std::array<std::uint8_t, kHeaderMaxBytes> header;
    std::uint16_t header_bytes = 0;
    std::uint16_t flags = 0;     // NUPA_RX_F_* but HASH_L4
    std::uint16_t gso_size = 0;  // as struct nupa_rx_comp
    std::uint16_t gso_segs = 1;
    std::uint32_t payload_bytes = 0;
    std::uint32_t qpn = 0;
    FlowKey flow;  // for RSS and steering; zero when the packet has no ports
};

class Merger {
public:
    // @buf_bytes: of the queue's largest fill buffers.  @enabled: NUPA_RX_MODE_GRO.
    // @run4_max_bytes: as in struct nupa_cmd_rx_mode.
    void configure(std::uint32_t buf_bytes, bool enabled,
                   std::uint32_t run4_max_bytes = 0) noexcept;

    // Payload bytes of @burst that may come as one run, a multiple of its mss; 0: one segment.
    std::uint32_t span(const Packet& burst, bool placed) const noexcept;
    bool active() const noexcept { return active_; }
    bool closed() const noexcept { return closed_; }  // nothing more can join
    // Can @packet join the run?  Only while active.
    bool fits(const Packet& packet, const Decision& decision) const noexcept;
    void start(const Packet& packet, const Decision& decision) noexcept;   // any packet
    void append(const Packet& packet, const Decision& decision) noexcept;  // fits() said yes
    std::uint32_t payload_bytes() const noexcept { return run_.payload_bytes; }
    std::uint32_t qpn() const noexcept { return run_.qpn; }
    // Is @packet of the same flow as the run, so that the run must go up first?
    bool same_flow(const Packet& packet) const noexcept;
    const Merged& finish() noexcept;  // valid until the next start()

private:
    std::uint32_t payload_max(const Headers& at, bool placed) const noexcept;
    bool same_headers(const Packet& packet) const noexcept;
    bool same_timestamps(const std::uint8_t* a, const std::uint8_t* b,
                         const Decision& decision) const noexcept;
    bool same_options(const Packet& packet, const Decision& decision) const noexcept;
    void finish_ip() noexcept;
    void finish_bth() noexcept;

    std::uint32_t buf_bytes_ = NUPA_RX_BUF_MIN_BYTES;
    std::uint32_t run4_max_bytes_ = kIpLengthMaxBytes;
    bool enabled_ = false;
    bool active_ = false;
    bool closed_ = false;
    Merged run_;
    Headers at_;
    Decision first_;
    std::uint32_t next_seq_ = 0;
    std::uint8_t last_flags_ = 0;   // FIN and PSH of the segments so far
    std::uint8_t last_opcode_ = 0;  // tcp_bth ver 0 opcode of the last segment
};

// NUPA_RX_F_* of one packet but HASH_L4.
std::uint16_t rx_flags(const Packet& packet, const Decision& decision) noexcept;

}  // namespace nupa
