// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace nupa {

// The line at @p will be written soon.
inline void prefetch(const void* p) noexcept {
    __builtin_prefetch(p, 1);
    // GCC 12 takes a function that does nothing else for one without effect and drops its calls.
    __asm__ volatile("");
}

}  // namespace nupa
