// SPDX-License-Identifier: BSD-3-Clause
// For programs that no preloaded library reaches: a process beside them that the kernel tells of
// each connect() and listen() of theirs and of their children, by seccomp's user notification.
#pragma once

namespace tcpqp::run {

// From here on this process is supervised, whatever program it becomes; the other one lives as
// long as anybody whom it serves.  With @stats that one's last line tells of @program.  Throws
// std::exception: it is not, and there is no other process.
void supervise(const char* program, bool stats);

}  // namespace tcpqp::run
