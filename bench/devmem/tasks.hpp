// SPDX-License-Identifier: BSD-3-Clause
// Time on a processor of the user processes of this machine: under -icount, their instructions,
// system calls included.  Kernel threads and interrupts on an idle processor are not among them.
#pragma once

#include <cstdint>

namespace nupa::bench {

// Of the calling thread, so far.
[[nodiscard]] uint64_t caller_ns() noexcept;
// Of all other threads that live.  Throws if /proc can't be read.
[[nodiscard]] uint64_t others_ns();

}  // namespace nupa::bench
