// SPDX-License-Identifier: BSD-3-Clause
// The start of each recent message, so that a segment that disagrees with its
// message is not placed.
#pragma once

#include <array>
#include <cstdint>

#include "limits.hpp"

namespace nupa {

// Number spaces of msn.
enum class MsnSpace : std::uint8_t { kUntagged, kWrite, kReadResponse };

class StartTable {
public:
    // False: @msn began elsewhere, or a later message took its place, so that nobody can tell.
    bool agree(MsnSpace space, std::uint16_t msn, std::uint32_t start) noexcept;

private:
    struct Entry {
        std::uint32_t start;
        std::uint16_t msn;
        MsnSpace space;
        bool used;
    };
    std::array<Entry, kStartsMax> entries_{};
};

}  // namespace nupa
