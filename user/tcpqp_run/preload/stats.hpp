// SPDX-License-Identifier: BSD-3-Clause
// tcpqp-run --stats: a line of each process that had sockets, when it ends.
#pragma once

namespace tcpqp::preload {

void begin_stats() noexcept;
void print_stats() noexcept;

}  // namespace tcpqp::preload
