// SPDX-License-Identifier: BSD-3-Clause
// Talking to tcpqp-run, and putting its socket in the place of the program's.
#pragma once

#include <sys/socket.h>

#include "base/fd.hpp"
#include "protocol/protocol.hpp"

namespace tcpqp::preload {

// Is there a relay to ask?
[[nodiscard]] bool has_relay() noexcept;

// A connected TCP socket of the program's, or one whose connect() is under way, goes to the relay,
// if it takes it: the same descriptor then is an AF_UNIX socket.  Keeps errno.
void offer(int fd, run::Ask ask, const sockaddr* peer, socklen_t bytes) noexcept;

// Is it the name of a relay's end?
[[nodiscard]] bool is_relays_name(const void* name, socklen_t bytes) noexcept;

// Of a relayed socket: its TCP socket, and what its connect() failed with.
struct Found {
    bool relayed = false;
    Fd tcp;            // empty: the relay is gone
    int so_error = 0;  // errno
};
[[nodiscard]] Found find(int fd) noexcept;

}  // namespace tcpqp::preload
