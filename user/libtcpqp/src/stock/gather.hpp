// SPDX-License-Identifier: BSD-3-Clause
// In a stream of large messages a receiver that wakes for each costs its sender's CPU more than
// its own, and an ACK each: it sleeps until a few have come, not for long, and seldom where few
// come.  For as long as it has a queue pair, a socket's SO_RCVLOWAT is ours.
#pragma once

#include <cstdint>

#include "stock/limits.hpp"

namespace tcpqp::stock {

class Gather {
public:
    explicit Gather(int socket) noexcept;
    ~Gather();
    Gather(const Gather&) = delete;
    Gather& operator=(const Gather&) = delete;

    // Before a wait(): the last message had @bytes, 0 if it was no large one, and was the
    // @messages-th.  The largest are as much as a few.
    void begin(uint32_t bytes, uint64_t messages) noexcept {
        bytes_ = messages >= after_ && bytes <= kGatherBytes / 2 ? bytes : 0;
        messages_ = messages;
    }
    [[nodiscard]] bool is_due() const noexcept { return bytes_ != 0; }
    // False: a signal ended it.
    [[nodiscard]] bool wait() noexcept { return !is_due() || sleep(); }

private:
    bool sleep() noexcept;
    void set_low_water(uint32_t bytes) const noexcept;
    [[nodiscard]] uint32_t unread() const noexcept;

    const int socket_;
    uint32_t before_ = 1;
    uint32_t bytes_ = 0;
    uint32_t pause_ = kGatherPauseMin;  // messages
    uint64_t messages_ = 0;
    uint64_t after_ = kGatherPauseMin;
};

}  // namespace tcpqp::stock
