// SPDX-License-Identifier: BSD-3-Clause
// WRITEs of one flow land in their order, so that the last one to an address
// wins.  What the host must copy it copies later: a WRITE after it is placed
// only when the host is that far.
#pragma once

#include <cstdint>

#include "disorder.hpp"
#include "shadow.hpp"

namespace nupa {

class WriteOrder {
public:
    // May bytes of the WRITE that begins at @start be placed, given that every
    // message before it was passed up?
    bool allows(std::uint32_t start, const Shadow& shadow) const noexcept {
        return !used_ || (!seq_after(start, start_) && (!older_ || shadow.consumed(before_)));
    }
    // Bytes up to @end of the WRITE that begins at @start, or of any from there on,
    // go to the host to copy.  Those without an option may be part of a WRITE, too, even of
    // the first message that was sent.
    void delivered(std::uint32_t start, std::uint32_t end) noexcept {
        if (!used_) {
            used_ = true, older_ = false, start_ = start, end_ = end;
        } else if (seq_after(start, start_)) {
            before_ = older_ && seq_after(before_, end_) ? before_ : end_;
            older_ = true, start_ = start, end_ = end;
        } else if (start == start_) {
            end_ = seq_after(end, end_) ? end : end_;
        } else {
            before_ = !older_ || seq_after(end, before_) ? end : before_;
            older_ = true;
        }
    }
    // Bytes of the WRITE that begins at @start were placed.
    void placed(std::uint32_t start) noexcept {
        if (!any_placed_ || seq_after(start, latest_))
            any_placed_ = true, latest_ = start;
    }
    // Is a WRITE after stream byte @end - 1 in memory?  Then everything before
    // it was placed, too, or the host is done with it: see allows().
    bool overtaken(std::uint32_t end) const noexcept {
        return any_placed_ && !seq_after(end, latest_);
    }
    // Forget what the host has copied; once for each segment, so that no mark grows old.
    void forget_copied(const Shadow& shadow) noexcept {
        used_ = used_ && !(shadow.consumed(end_) && (!older_ || shadow.consumed(before_)));
        any_placed_ = any_placed_ && !shadow.consumed(latest_);
    }

private:
    bool any_placed_ = false;   // latest_ is valid
    std::uint32_t latest_ = 0;  // start of the latest WRITE of which something was placed
    bool used_ = false;
    bool older_ = false;        // before_ is valid
    std::uint32_t start_ = 0;   // of the latest message of which the host copies something
    std::uint32_t end_ = 0;     // how far the host copies of that message
    std::uint32_t before_ = 0;  // how far it copies of the messages before that one
};

}  // namespace nupa
