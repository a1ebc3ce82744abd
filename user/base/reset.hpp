// SPDX-License-Identifier: BSD-3-Clause
// TCP's abrupt end of a connection whose descriptor stays open.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

namespace tcpqp {

// TCP drops what it has not sent, and with it every reference to its buffers.
inline void reset_connection(int socket) noexcept {
    const sockaddr_in none{AF_UNSPEC, 0, {0}, {0}};
    static_cast<void>(::connect(socket, reinterpret_cast<const sockaddr*>(&none), sizeof(none)));
}

}  // namespace tcpqp
