// SPDX-License-Identifier: BSD-3-Clause
// The interface by which a connected socket's packets leave.
#pragma once

#include <string>

namespace tcpqp {

// 0 or an errno; ENETUNREACH: there is no route.
[[nodiscard]] int route_interface(int socket, std::string& ifname) noexcept;

}  // namespace tcpqp
