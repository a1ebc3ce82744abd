// SPDX-License-Identifier: BSD-3-Clause
// The one copy of a placed byte.
#pragma once

#include <cstddef>
#include <span>

namespace nupa {

// Copies @bytes in strictly rising destination order, so that who polls the
// end of a line sees the rest of the line.  memcpy() does not promise that:
// glibc stores the first vector of a block last.  No overlap.
void copy_rising(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

// The ways to do it that this processor has, by the name of what they need.
struct CopyWay {
    const char* name;
    decltype(&copy_rising) copy;
};
std::span<const CopyWay> copy_ways() noexcept;  // copy_rising() is the last one

}  // namespace nupa
