// SPDX-License-Identifier: BSD-3-Clause
// An epoll holds the socket, not the descriptor: a socket that is in one can't be replaced.
#pragma once

namespace tcpqp::preload {

// The program puts a descriptor into an epoll.
void note_epoll(int fd) noexcept;
// Is it still in one?
[[nodiscard]] bool is_in_epoll(int fd) noexcept;

}  // namespace tcpqp::preload
