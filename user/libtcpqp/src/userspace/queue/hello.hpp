// SPDX-License-Identifier: BSD-3-Clause
// The first frame each way, when the caller waits for the peer.
#pragma once

#include <cstdint>

#include "userspace/option/option.hpp"

namespace tcpqp::stock {

// Sends our hello, which is an ACKNOWLEDGE too if there is an @option.  0 or a negative errno.
[[nodiscard]] int send_hello(int socket, const Frame& ours, Option* option) noexcept;

struct Greeting {
    bool done = false;    // the peer was heard
    bool module = false;  // by tcp_bth: it sends no hello
    Frame peers;          // else
};

// Waits for the peer's.  0, -EPROTO, -ETIMEDOUT, -ECONNRESET, with a reason.
[[nodiscard]] int receive_hello(int socket, int timeout_ms, Option* option, Greeting& greeting,
                                uint32_t& reason) noexcept;

}  // namespace tcpqp::stock
