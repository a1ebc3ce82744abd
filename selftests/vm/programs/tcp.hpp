// SPDX-License-Identifier: BSD-3-Clause
// Connected TCP sockets for test programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace nupa::programs {

// A listener on [::]:port.  Throws std::system_error.
tcpqp::Fd listen_on(uint16_t port, int backlog);
tcpqp::Fd accept_from(const tcpqp::Fd& listener);
// Tries for ten seconds: the listener may still be starting.  @address is numeric.
tcpqp::Fd connect_to(const std::string& address, uint16_t port);

// Returns when the other end, with its own end of @control, is here too.  Throws std::system_error.
void meet(const tcpqp::Fd& control);

// Several connections whose order both ends agree on.  accept() gives connections in the order in
// which handshakes end, and these overtake each other: so both ends have met over @control, one
// more connection, before there is another, and the connecting end names its ports over it, by
// which the accepting end sorts.  Blocks; throws std::system_error, or std::runtime_error if
// somebody else connected.
std::vector<tcpqp::Fd> accept_many(const tcpqp::Fd& listener, const tcpqp::Fd& control,
                                   size_t count);
std::vector<tcpqp::Fd> connect_many(const std::string& address, uint16_t port,
                                    const tcpqp::Fd& control, size_t count);

}  // namespace nupa::programs
