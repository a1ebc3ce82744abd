// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of a modelled Linux TCP: receive queue, out-of-order
// queue, window.  Positions are stream offsets.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "coverage.hpp"
#include "dice.hpp"
#include "stream.hpp"

extern "C" {
#include "wire/msgwire.h"
}

namespace sim {

struct Skb {
    std::uint32_t at = 0, len = 0;
    bool decrypted = false;  // placed: there is no data
    bool mapped = false;
    bool tampered = false;
    tqp_skb_map map{};
    std::vector<std::byte> data;
    std::uint32_t end() const noexcept { return at + len; }
};

struct Range {
    std::uint32_t begin, end;
};

class TcpReceiver {
public:
    // @stream: the truth about what arrives here; bytes in a queue are marked kByteHeld.
    TcpReceiver(Stream& stream, std::uint32_t buffer_bytes, std::uint8_t wscale, Dice& dice,
                Coverage& coverage);

    std::uint32_t next() const noexcept { return next_; }      // rcv_nxt
    std::uint32_t copied() const noexcept { return copied_; }  // copied_seq
    bool acceptable(std::uint32_t at, std::uint32_t len) const noexcept;
    void accept(Skb&& skb);
    // The window to advertise now, scaled; the right edge never moves back.
    std::uint16_t advertise() noexcept;

    // The skb that holds the next byte for the reader, or nullptr.
    const Skb* front() noexcept;
    void read(std::uint32_t bytes) noexcept { copied_ += bytes; }

    // SACK blocks.
    std::vector<Range> islands() const;
    // Memory pressure: drop from the out-of-order queue; copy the receive queue together.
    void renege();
    void collapse();

private:
    void queue(Skb&& skb);
    void insert(Skb&& skb);
    void drain();
    std::uint32_t unread() const noexcept { return next_ - copied_; }

    bool coalesce(Skb& to, Skb& from);

    Stream& stream_;
    Dice& dice_;
    Coverage& coverage_;
    std::uint32_t buffer_bytes_;
    std::uint8_t wscale_;
    std::uint32_t next_ = 0, copied_ = 0, right_edge_ = 0;
    std::deque<Skb> queue_;
    std::vector<Skb> ooo_;  // by position
};

}  // namespace sim
