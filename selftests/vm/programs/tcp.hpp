// SPDX-License-Identifier: BSD-3-Clause
// Connected TCP sockets for test programs.
#pragma once

#include <cstdint>
#include <string>

#include "verbs/fd.hpp"

namespace nupa::programs {

// A listener on [::]:port.  Throws std::system_error.
tcpqp::Fd listen_on(uint16_t port, int backlog);
tcpqp::Fd accept_from(const tcpqp::Fd& listener);
// Tries for ten seconds: the listener may still be starting.  @address is numeric.
tcpqp::Fd connect_to(const std::string& address, uint16_t port);

}  // namespace nupa::programs
