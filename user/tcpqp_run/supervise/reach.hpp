// SPDX-License-Identifier: BSD-3-Clause
// Which programs a preloaded library does not reach.
#pragma once

namespace tcpqp::run {

// True: @program, as execvp() finds it, is for this processor and either has no dynamic linker or
// was made by Go's, whose programs make system calls by themselves.  What can't be read is not.
[[nodiscard]] bool calls_by_itself(const char* program) noexcept;

}  // namespace tcpqp::run
