// SPDX-License-Identifier: BSD-3-Clause
// One TCP connection, made by ordinary sockets.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "options.hpp"
#include "report.hpp"
#include "status.hpp"

namespace ncqp {

struct Connection {
    tcpqp::Fd fd;      // non-blocking
    std::string peer;  // for people: ADDRESS port N
    bool has_queue_pair = false;

    // The connection is reset instead of closed: the peer must not take it for an end.
    void reset() noexcept;
};

// Connect, or listen and accept one, as the options say.
Status open_connection(const Options& options, Connection& out);

// segments, retrans and mss as the kernel counted them.
void read_tcp_info(int fd, Report& report) noexcept;

// Is everything sent, with the FIN, acknowledged by the peer's TCP?
[[nodiscard]] bool fin_acknowledged(int fd) noexcept;

// "the peer ..." for an errno of a connected socket.
[[nodiscard]] std::string connection_error(int error);

}  // namespace ncqp
