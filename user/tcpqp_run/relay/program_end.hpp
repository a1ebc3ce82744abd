// SPDX-License-Identifier: BSD-3-Clause
// The program's end of a socket pair, wherever it is now.
#pragma once

#include <sys/types.h>

namespace tcpqp::run {

// Before our end is closed: makes the other one report ECONNRESET instead of an end, behind what is
// already on its way to the program.  @inode: the other end's.
void reset_program(int ours, ino_t inode) noexcept;

}  // namespace tcpqp::run
