// SPDX-License-Identifier: BSD-3-Clause
// How much of what was placed may TCP not have heard of yet?
//
// TCP acknowledges what it hears of, and a sender that has used up its window waits for that.
// The host's window is known here, the sender's congestion window is not: it shows when a
// sender falls silent in mid-message.  TCP hears of what was placed at half of either, so that
// acknowledgements come back while the sender still has something to send.
#pragma once

#include <algorithm>
#include <cstdint>

#include "limits.hpp"

namespace nupa {

class AckPace {
public:
    explicit AckPace(std::uint32_t acked = 0) noexcept : acked_(acked) {}

    // The host has acknowledged everything before @ack.
    void acknowledged(std::uint32_t ack) noexcept {
        const std::uint32_t step = ack - acked_;
        if (step - 1 >= kSequenceHalf)  // nothing new
            return;
        acked_ = ack;
        if (step < limit_)
            return;
        if (step > silent_at_)  // it has sent more since
            silent_at_ = kAckStretchMaxBytes;
        const std::uint32_t grown =
            limit_ + limit_ / (silent_at_ == kAckStretchMaxBytes ? kFast : kSlow) + 1;
        limit_ = std::min(std::max(grown, step / 2), kAckStretchMaxBytes);
    }

    // The sender sent nothing more after @next, and TCP has heard of no more than it acknowledged.
    void silent(std::uint32_t next) noexcept {
        const std::uint32_t under_way = next - acked_;
        if (under_way - 1 >= kSequenceHalf)
            return;
        silent_at_ = std::min(under_way, kAckStretchMaxBytes);
        limit_ = silent_at_ / 2;
    }

    // Something was lost, overtaken or sent again, all before @next has come: such a path's
    // windows are small, and each wait is a part of its round trip.
    void note_loss(std::uint32_t next) noexcept {
        loss_recent_ = true;
        quiet_at_ = next + kAckQuietBytes;
    }

    // All before @next has come.
    void reached(std::uint32_t next) noexcept {
        loss_recent_ = loss_recent_ && quiet_at_ - next - 1 < kSequenceHalf;
    }

    // All before @next has come, the host's window ends at @right_edge: may TCP hear of it later?
    bool may_wait(std::uint32_t next, std::uint32_t right_edge) const noexcept {
        const std::uint32_t under_way = next - acked_;
        return !loss_recent_ && under_way < limit_ && under_way < (right_edge - acked_) / 2;
    }

    // All before @next has come: is it so little that TCP itself would delay its acknowledgement?
    bool may_delay(std::uint32_t next) const noexcept { return next - acked_ <= kAckDelayBytes; }
    // .. or so little that the sender's window has room for as much again, while nothing was lost?
    bool may_be_later(std::uint32_t next) const noexcept { return next - acked_ <= kAckLaterBytes; }

private:
    static constexpr std::uint32_t kSequenceHalf = 1u << 31;
    // Of itself, for each stretch: while no silence is known to lie ahead, and up to one that is.
    static constexpr std::uint32_t kFast = 4, kSlow = 32;

    std::uint32_t acked_;
    std::uint32_t limit_ = kAckStretchFirstBytes;
    std::uint32_t silent_at_ = kAckStretchMaxBytes;  // the sender waited with so much under way
    bool loss_recent_ = false;                       // before quiet_at_
    std::uint32_t quiet_at_ = 0;
};

}  // namespace nupa
