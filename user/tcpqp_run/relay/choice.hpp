// SPDX-License-Identifier: BSD-3-Clause
// Which connections are worth a try: what is known before any packet is sent for it.
#pragma once

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <map>
#include <utility>

#include "protocol/protocol.hpp"

namespace tcpqp::run {

class Choice {
public:
    // enum tcpqp_engine; stock and a forced engine ask nothing but the limits.
    explicit Choice(uint32_t engine) noexcept : engine_(engine) {}

    // kNone: try.  @under_way: the peer of a connect() that has not ended, and whose socket
    // does not tell yet.
    Plain judge(int socket, const sockaddr_storage* under_way, bool accepted);
    // Its peer had no queue pair.
    void remember_plain(int socket, bool accepted);

private:
    using Address = std::array<uint8_t, 16>;  // IPv4 as mapped into IPv6
    // A server is plain by address and port, a client by address; one says nothing of the other.
    using Peer = std::pair<Address, uint16_t>;
    using Clock = std::chrono::steady_clock;

    static bool address_of(const sockaddr_storage& from, Address& to) noexcept;
    static Peer peer_of(const sockaddr_storage& from, const Address& address,
                        bool accepted) noexcept;
    bool is_plain(const Peer& peer);

    const uint32_t engine_;
    std::map<Peer, Clock::time_point> plain_;  // until when
};

}  // namespace tcpqp::run
