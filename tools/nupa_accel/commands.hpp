// SPDX-License-Identifier: BSD-3-Clause
// What an accelerator's commands do to its memory.  Pure: no descriptor, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tcp_qp/nupa_accel_hw.h"

namespace nupa::accel {

struct Outcome {
    nupa_accel_status status;
    uint64_t result = 0;
};

// Every field of @cmd, which is our own copy.  What it names lies within @bytes of memory if it is
// NUPA_ACCEL_OK.
nupa_accel_status check(const nupa_accel_cmd& cmd, uint64_t bytes) noexcept;

// Of a checked command that waits for nothing and rings nobody: neither WAIT nor RING.  The host
// may write all of @memory meanwhile.
Outcome execute(const nupa_accel_cmd& cmd, std::span<std::byte> memory) noexcept;

// Has the flag of a checked WAIT been set?
bool flag_is_set(const nupa_accel_cmd& cmd, std::span<const std::byte> memory) noexcept;

}  // namespace nupa::accel
