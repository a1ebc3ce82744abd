// SPDX-License-Identifier: BSD-3-Clause
// Does it pay that TCP hears of a completed message a little later?
//
// It does where an answer follows: who sends it looks at what came, and no interrupt was needed.
// Where none does, the sender may wait for an acknowledgement, and waits longer; it does so, too,
// where it waits for the acknowledgement although it has the answer, which left before.  So who was
// quiet in vain is told at once for a while, for twice as long each time.
//
// How long an answer takes is the host's: one that sleeps, or is slow, takes a hundred times as
// long as one that spins.  So where the answer comes all the same, but too late, the next message
// may wait longer.  Where none comes nothing waits longer than it did.
#pragma once

#include <algorithm>
#include <cstdint>

namespace nupa {

class QuietPolicy {
public:
    // The next message: is it to be quiet?  Each call is another message.
    bool may() noexcept {
        if (unanswered_) {
            unanswered_ = false;
            step_ = 0;
        }
        if (left_) {
            left_--;
            return false;
        }
        if (++good_ == kGood)
            pause_ = 0;
        return true;
    }
    // The host did not look before the time was over.
    void in_vain() noexcept {
        pause_ = static_cast<std::uint16_t>(std::min<unsigned>(2u * pause_ + kFirst, kMost));
        left_ = pause_;
        good_ = 0;
        unanswered_ = true;
    }
    // The host has sent something.
    void answered() noexcept {
        if (!unanswered_)
            return;
        unanswered_ = false;
        if (step_ < kSteps) {
            step_++;
            left_ = pause_ = kFirst;
        }
    }
    // How many times as long as the shortest time a message may wait.
    std::uint16_t patience() const noexcept {
        return static_cast<std::uint16_t>(1u << (kBitsOfStep * step_));
    }

private:
    static constexpr std::uint16_t kFirst = 4, kMost = 1024, kBegin = 4, kGood = 16;
    static constexpr std::uint8_t kSteps = 2, kBitsOfStep = 4;

    std::uint16_t left_ = kBegin;  // messages that are told at once
    std::uint16_t pause_ = 0;
    std::uint16_t good_ = 0;   // in a row
    std::uint8_t step_ = 0;    // of patience
    bool unanswered_ = false;  // the latest one, which was quiet in vain
};

}  // namespace nupa
