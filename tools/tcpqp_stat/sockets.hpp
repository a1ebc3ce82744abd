// SPDX-License-Identifier: BSD-3-Clause
// TCP connections of this network namespace, as `ss -tie` has them.
#pragma once

#include <tcp_qp/tcp_qp.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace tcpqp::stat {

struct Socket {
    uint64_t cookie = 0;
    uint64_t inode = 0;
    std::string local, peer;
    bool established = false;
    double rtt_ms = 0;
    uint32_t cwnd = 0;  // packets
    uint32_t retransmits = 0;
    uint64_t bytes_acked = 0, bytes_received = 0;
    std::string congestion;
    std::optional<tcp_qp_stream_info> stream;  // it has the ULP of this name
};

// By cookie; those that listen are left out.  Throws std::system_error.
std::unordered_map<uint64_t, Socket> sockets();

}  // namespace tcpqp::stat
