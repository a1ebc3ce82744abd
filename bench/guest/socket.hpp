// SPDX-License-Identifier: BSD-3-Clause
// What the transports over plain sockets share.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/fd.hpp"
#include "buffer.hpp"
#include "lengths.hpp"
#include "transport.hpp"

namespace nupa::bench {

// A receiver takes what is there, up to so much: fewer calls for small messages.
inline constexpr size_t kReadMinBytes = 256 << 10;
inline constexpr size_t kReadMaxBytes = 1 << 20;

// How many buffers a sender has that hands them to the kernel, and has them back later.
inline uint32_t lent_buffers(uint32_t message_bytes) noexcept {
    return std::clamp<uint32_t>(static_cast<uint32_t>(kWindowBytes / message_bytes), 4, 1024);
}

// Who waits for @fd, or for a queue pair on it, looks into the device himself for so long.  Throws.
void busy_poll(int fd, int us);

struct Flow {
    tcpqp::Fd fd;
    uint64_t left = 0;  // bytes of this phase
    uint64_t done = 0;
    uint64_t message = 0;  // number of the current one
    uint32_t offset = 0;   // bytes of the current message that are done
};

// Sockets of one end with what each has still to do.
class Flows {
public:
    // Sets TCP_NODELAY if @no_delay, and that calls do not block if there are several or if @spins,
    // which has the device looked at by whoever receives (SO_BUSY_POLL).
    Flows(std::vector<tcpqp::Fd> sockets, bool no_delay, bool spins = false);

    void begin(const Spec& spec, const Lengths& lengths, uint64_t messages);
    [[nodiscard]] std::vector<Flow>& all() noexcept { return flows_; }
    [[nodiscard]] bool several() const noexcept { return flows_.size() > 1; }
    [[nodiscard]] bool finished() const noexcept { return open_ == 0; }
    void advance(Flow& flow, uint64_t bytes);
    // Until one that is unfinished is ready.  Throws after kSilenceLimitMs.
    void wait(short events);
    [[nodiscard]] const Shares& shares() const noexcept { return shares_; }

private:
    std::vector<Flow> flows_;
    std::vector<pollfd> polled_;
    size_t open_ = 0;
    Shares shares_;
};

// One whole buffer each way, for round trips; a socket that does not block is asked again and
// again.  Throws.
void send_all(int fd, const void* data, size_t bytes);
void receive_all(int fd, void* data, size_t bytes);

}  // namespace nupa::bench
