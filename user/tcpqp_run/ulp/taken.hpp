// SPDX-License-Identifier: BSD-3-Clause
// Sockets of a program's that are about to be connections, or to listen.
#pragma once

namespace tcpqp::run {

// Gives it the ULP, if it is TCP's and the module is there.  Keeps errno, reads none of the
// program's memory, and may be called from a signal handler.
void take(int fd) noexcept;

// One that is not to be had, by an errno: counted, if it may be TCP's.
void refuse(int error) noexcept;

// A line on standard error about those of a program, if there were any.  What its listeners accept
// is not seen from here.
void print_taken(const char* program, int pid) noexcept;
void forget_taken() noexcept;  // in a child: they are its parent's

}  // namespace tcpqp::run
