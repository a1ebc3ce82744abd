// SPDX-License-Identifier: BSD-3-Clause
// Time on a processor of the user processes of this machine: under -icount, their instructions,
// system calls included.  Kernel threads and interrupts on an idle processor are not among them.
#pragma once

#include <cstdint>

namespace nupa::bench {

struct TaskTimes {
    uint64_t caller_ns = 0;  // of the thread that asks
    uint64_t others_ns = 0;  // of all other threads of user processes

    // Throws if /proc can't be read.
    [[nodiscard]] static TaskTimes read();
};

}  // namespace nupa::bench
