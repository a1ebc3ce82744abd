// SPDX-License-Identifier: BSD-3-Clause
// Who may ask the relay: its user's processes, and the program's, whatever user they have become.
#pragma once

namespace tcpqp::run {

// The process that made this AF_UNIX connection.
[[nodiscard]] bool may_ask(int asker) noexcept;

}  // namespace tcpqp::run
