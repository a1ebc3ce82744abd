// SPDX-License-Identifier: BSD-3-Clause
// The ways of payload from a sender's host memory to a place in the receiver's accelerator:
//
//   tcp     recv() into host memory, then the processor copies
//   devmem  recvmsg(MSG_SOCK_DEVMEM): pieces in the accelerator, which then copies them together
//   qp      receives posted at the place itself
//
// Every message is kMessageBytes of the same pattern.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "place.hpp"

namespace nupa::bench {

// Since the connection began.
struct Spent {
    uint64_t host_bytes = 0;  // payload in host memory, or in a processor's hands
    uint64_t cmsgs = 0;
};

class Receiving {
public:
    virtual ~Receiving() = default;
    // Returns when @messages more are where they belong.  Throws when the peer is gone.
    virtual void receive(uint64_t messages) = 0;
    [[nodiscard]] virtual Spent spent() const = 0;
};

class Sending {
public:
    virtual ~Sending() = default;
    virtual void send(uint64_t messages) = 0;  // returns when all are out of its hands
};

// @socket: connected, and nothing has been sent on it.  They throw, for an unknown way
// std::invalid_argument.
[[nodiscard]] std::unique_ptr<Receiving> make_receiving(const std::string& way, tcpqp::Fd socket,
                                                        const std::string& interface, Place& place);
[[nodiscard]] std::unique_ptr<Sending> make_sending(const std::string& way, tcpqp::Fd socket,
                                                    const std::string& interface);

}  // namespace nupa::bench
