// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs of the tcp_qp module, as `rdma resource show qp -dd` has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tcpqp::stat {

struct QueuePair {
    std::string device;
    uint32_t qpn = 0;
    std::string state;   // IBTA's: RTS, ERR, ...
    std::string engine;  // none: it has no connection
    uint32_t reason = 0;
    uint64_t socket_cookie = 0;  // 0: nobody has looked at its socket yet
    uint64_t credits = 0;        // messages that the peer has receives for
    uint64_t tx_messages = 0, tx_bytes = 0;
    uint64_t rx_messages = 0, rx_delivered = 0, rx_placed = 0, rx_copied = 0;
    int pid = 0;  // 0: not ours to see
};

// None where there is no RDMA at all.  Throws std::system_error.
std::vector<QueuePair> queue_pairs();

// enum tcp_qp_reason: "NO_PEER_QP", and a sentence.
std::string reason_name(uint32_t reason);
std::string reason_text(uint32_t reason);

}  // namespace tcpqp::stat
