// SPDX-License-Identifier: BSD-3-Clause
// One way to move messages between two processes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "control.hpp"
#include "spec.hpp"

namespace nupa::bench {

inline constexpr int kSilenceLimitMs = 20000;      // without progress: the measurement has failed
inline constexpr uint64_t kWindowBytes = 8 << 20;  // of messages under way on a flow

// Payload bytes that this end's processor copied, and that it did not have to.
struct Copies {
    uint64_t copied = 0;
    uint64_t avoided = 0;
};

// When the first of several flows had all its bytes, each had this many.
using Shares = std::vector<uint64_t>;

// One end.  Calls of both ends match: send with receive, ping with pong.  They throw when the
// other end is gone, data is short, or nothing moves for kSilenceLimitMs.
class Transport {
public:
    Transport() = default;
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;
    virtual ~Transport() = default;

    // @messages of all flows, as even as can be; returns when every buffer is the caller's again.
    virtual void send(uint64_t messages) = 0;
    // Returns when all have arrived; at once where the receiver takes no part.
    virtual void receive(uint64_t messages) = 0;
    // Round trips; appends nanoseconds to @rtt.
    virtual void ping(uint64_t messages, std::vector<uint64_t>& rtt) = 0;
    virtual void pong(uint64_t messages) = 0;

    // After the last message: is what arrived what was sent?  Throws std::runtime_error.
    virtual void check() const {}
    [[nodiscard]] virtual bool receiver_is_passive() const noexcept { return false; }
    [[nodiscard]] virtual Copies copies() const = 0;
    [[nodiscard]] virtual Shares shares() const { return {}; }
    // More facts for the report, as JSON members; empty or ", "-joined.
    [[nodiscard]] virtual std::string facts() const { return {}; }
};

struct TransportArgs {
    const Spec& spec;
    bool sender;
    std::vector<tcpqp::Fd> sockets;  // connected to the other end, spec.flows of them
    Control& control;                // for a handshake: both ends meet() equally often
    std::string interface;
};

// Throws std::invalid_argument for an unknown name, others when it can't be had here.
[[nodiscard]] std::unique_ptr<Transport> make_transport(TransportArgs args);

[[nodiscard]] std::unique_ptr<Transport> make_tcp(TransportArgs args);
[[nodiscard]] std::unique_ptr<Transport> make_zerocopy(TransportArgs args);
[[nodiscard]] std::unique_ptr<Transport> make_uring(TransportArgs args);
[[nodiscard]] std::unique_ptr<Transport> make_rxe(TransportArgs args);
[[nodiscard]] std::unique_ptr<Transport> make_qp(TransportArgs args);

// How @messages are divided: flow @flow of @flows.
[[nodiscard]] constexpr uint64_t share_of(uint64_t messages, uint32_t flow,
                                          uint32_t flows) noexcept {
    return messages / flows + (flow < messages % flows);
}

}  // namespace nupa::bench
