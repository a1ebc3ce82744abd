// SPDX-License-Identifier: BSD-3-Clause
// What is said on the standard error of a program that is not ours.
#pragma once

namespace tcpqp::run {

// A line, or nothing where it can't be written now.  Never waits, ends no program by SIGPIPE, and
// keeps errno.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...) noexcept;

}  // namespace tcpqp::run
