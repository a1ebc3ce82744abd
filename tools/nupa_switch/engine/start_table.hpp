// SPDX-License-Identifier: BSD-3-Clause
// The start of each recent message, so that a segment that disagrees with its
// message is not placed.
#pragma once

#include <array>
#include <cstdint>

#include "limits.hpp"

namespace nupa {

// Families of messages.  WRITEs with and without immediate number their
// messages in different spaces, and a FIRST or MIDDLE does not say which one it
// belongs to: tagged messages are therefore told apart by their target, too.
enum class MsnSpace : std::uint8_t { kUntagged, kWrite, kReadResponse };

class StartTable {
public:
    // False: @msn began elsewhere, or a later message took its place, so that nobody can tell.
    // @target: 0 when untagged, else something made of va and rkey.
    // Untagged messages begin in the order of their numbers, and one that claims an
    // older number at a later place is refused: it would write into a receive whose
    // own bytes may have come, and which completes before the host sees the lie.
    bool agree(MsnSpace space, std::uint16_t msn, std::uint32_t target,
               std::uint32_t start) noexcept;

private:
    struct Untagged {
        std::uint32_t start;
        std::uint16_t msn;
        bool used;
    };
    struct Entry {
        std::uint32_t start;
        std::uint32_t target;
        std::uint16_t msn;
        MsnSpace space;
        bool used;
    };
    bool agree_untagged(std::uint16_t msn, std::uint32_t start) noexcept;

    std::array<Untagged, kStartsMax> untagged_{};  // tagged ones must not displace these
    std::array<Entry, kStartsMax> entries_{};
};

}  // namespace nupa
