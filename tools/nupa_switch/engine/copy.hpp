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

// The ways to do it that this processor has, by the name of what they need; the best one is last.
struct CopyWay {
    const char* name;
    decltype(&copy_rising) copy;
};
std::span<const CopyWay> copy_ways() noexcept;

// The environment variable that names the way to use: for tests, which try each of them on
// whatever processor they run.  A way that is not there ends the program with a message.
inline constexpr char kCopyVariable[] = "NUPA_COPY";
const char* copy_way() noexcept;  // the one in use

}  // namespace nupa
