// SPDX-License-Identifier: BSD-3-Clause
// The first frame each way, when the caller waits for the peer.
#pragma once

#include <cstdint>

namespace tcpqp::stock {

// Sends our hello.  0 or a negative errno.
[[nodiscard]] int send_hello(int socket) noexcept;
// Waits for the peer's.  0, -EPROTO, -ETIMEDOUT, -ECONNRESET, -EINTR, with a reason.
[[nodiscard]] int receive_hello(int socket, int timeout_ms, uint32_t& reason) noexcept;

}  // namespace tcpqp::stock
