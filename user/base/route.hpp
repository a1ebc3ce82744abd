// SPDX-License-Identifier: BSD-3-Clause
// The interface by which a connected socket's packets leave.
#pragma once

#include <sys/socket.h>

#include <string>

namespace tcpqp {

// 0 or an errno; ENETUNREACH: there is no route.
[[nodiscard]] int route_interface(int socket, std::string& ifname) noexcept;
// The same of a connection from @local to @peer, IPv4 or IPv6.
[[nodiscard]] int route_interface(const sockaddr_storage& local, const sockaddr_storage& peer,
                                  std::string& ifname) noexcept;

}  // namespace tcpqp
