// SPDX-License-Identifier: BSD-3-Clause
// A receiver that wakes for each piece of what comes costs its sender's CPU more than its own,
// and an ACK each.  In a stream of large messages it sleeps until a few have come, not for long,
// and seldom where few come; in a message that is larger than those, until much of it has.
// For as long as it has a queue pair, a socket's SO_RCVLOWAT is ours.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "userspace/base/limits.hpp"

namespace tcpqp::stock {

class Gather {
public:
    explicit Gather(int socket) noexcept;
    ~Gather();
    Gather(const Gather&) = delete;
    Gather& operator=(const Gather&) = delete;

    // Before a wait(): the last message had @bytes, 0 if it was no large one, and was the
    // @messages-th; @rest of the one that has begun are still to come.
    void begin(uint32_t bytes, uint64_t messages, size_t rest) noexcept {
        bytes_ = messages >= after_ && bytes <= kGatherBytes / 2 ? bytes : 0;
        messages_ = messages;
        // A blocking read that has copied less than the mark sleeps until as much again has come:
        // of half of the rest there always is.
        half_ = rest >= kGatherBytes ? static_cast<uint32_t>(std::min(rest / 2, kHalfMax)) : 0;
    }
    [[nodiscard]] bool is_due() const noexcept { return bytes_ != 0; }
    // Then a blocking read, and end().  False: a signal ended it.
    [[nodiscard]] bool wait() noexcept {
        if (half_ != 0)
            set_low_water(half_);
        return !is_due() || sleep();
    }
    void end() noexcept {
        if (half_ != 0)
            set_low_water(1);
    }

private:
    bool sleep() noexcept;
    void set_low_water(uint32_t bytes) const noexcept;
    [[nodiscard]] uint32_t unread() const noexcept;

    const int socket_;
    uint32_t before_ = 1;
    uint32_t bytes_ = 0;
    uint32_t half_ = 0;
    uint32_t pause_ = kGatherPauseMin;  // messages
    uint64_t messages_ = 0;
    uint64_t after_ = kGatherPauseMin;
};

}  // namespace tcpqp::stock
