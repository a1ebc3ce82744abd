// SPDX-License-Identifier: BSD-3-Clause
// SIGINT and SIGTERM as a readable descriptor, and the one place that waits.
#pragma once

#include <poll.h>

#include <span>

#include "status.hpp"

namespace ncqp {

// Once, before anything waits.  A signal more than a second
// after the first ends the process at once.
void stop_install();
[[nodiscard]] bool stop_requested() noexcept;

// Wait until one of @fds is ready (at most kWaitMax of them).  Fails with a
// sentence when the user interrupts, or after @timeout_ms (-1: never) with @what.
constexpr size_t kWaitMax = 4;
Status wait_for(std::span<pollfd> fds, int timeout_ms, const char* what) noexcept;
// The same for one descriptor.
Status wait_fd(int fd, short events, int timeout_ms, const char* what) noexcept;

[[nodiscard]] Status interrupted();

}  // namespace ncqp
