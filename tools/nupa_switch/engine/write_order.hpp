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
    // Bytes up to @end of the WRITE that begins at @start go to the host to copy.
    void delivered(std::uint32_t start, std::uint32_t end) noexcept {
        if (!used_) {
            used_ = true, older_ = false, start_ = start, end_ = end;
        } else if (seq_after(start, start_)) {
            older_ = true, before_ = end_, start_ = start, end_ = end;
        } else if (start == start_) {
            end_ = seq_after(end, end_) ? end : end_;
        } else {
            before_ = !older_ || seq_after(end, before_) ? end : before_;
            older_ = true;
        }
    }
    // Forget what the host has copied; once for each segment, so that no mark grows old.
    void settle(const Shadow& shadow) noexcept { used_ = used_ && !shadow.consumed(end_); }

private:
    bool used_ = false;
    bool older_ = false;        // before_ is valid
    std::uint32_t start_ = 0;   // of the latest message of which the host copies something,
    std::uint32_t end_ = 0;     // until here
    std::uint32_t before_ = 0;  // the same of the messages before that one
};

}  // namespace nupa
