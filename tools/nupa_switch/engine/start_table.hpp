// SPDX-License-Identifier: BSD-3-Clause
// Where each recent message begins and ends, so that a segment that disagrees with its
// message is not placed.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <array>
#include <cstdint>

#include "limits.hpp"

namespace nupa {

// Families of messages.  WRITEs with and without immediate number their
// messages in different spaces, and a FIRST or MIDDLE does not say which one it
// belongs to: WRITEs are therefore told apart by their target, too.
enum class MsnSpace : std::uint8_t { kUntagged, kWrite, kReadResponse };

// What a segment says of its message.
struct Extent {
    std::uint32_t start = 0;
    std::uint32_t reach = 0;  // so far at least, and no further if
    bool ends = false;
};

// Messages that begin in the order of their numbers, by number.
template <std::size_t kMax>
class OrderedStarts {
public:
    bool agree(std::uint16_t msn, const Extent& extent) noexcept;

private:
    struct Entry {
        Extent extent;
        std::uint16_t msn;
        bool used;
    };
    std::array<Entry, kMax> entries_{};
};

class StartTable {
public:
    // False: @msn began or ended elsewhere, or a later message took its place, so that nobody can
    // tell.  @target: of a WRITE, something made of va and rkey.
    //
    // What goes into memory that a completion gives back (a receive, a READ's sink) must be known:
    // the host may have completed the message before it sees the lie.  So of these a number has
    // one start and one end, and is refused once it was forgotten.
    bool agree(MsnSpace space, std::uint16_t msn, std::uint32_t target,
               const Extent& extent) noexcept;

private:
    struct Write {
        std::uint32_t start;
        std::uint32_t target;
        std::uint16_t msn;
        bool used;
    };
    bool agree_write(std::uint16_t msn, std::uint32_t target, std::uint32_t start) noexcept;

    OrderedStarts<kStartsMax> untagged_;
    OrderedStarts<NUPA_READS_MAX> responses_;
    std::array<Write, kStartsMax> writes_{};
};

}  // namespace nupa
