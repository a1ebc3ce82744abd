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
    bool agree(MsnSpace space, std::uint16_t msn, std::uint32_t target,
               std::uint32_t start) noexcept;

private:
    struct Entry {
        std::uint32_t start;
        std::uint32_t target;
        std::uint16_t msn;
        MsnSpace space;
        bool used;
    };
    std::array<Entry, kStartsMax> entries_{};
};

}  // namespace nupa
