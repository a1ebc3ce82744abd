// SPDX-License-Identifier: BSD-3-Clause
// Tells the BPF program of each message before its bytes are handed to TCP.
#pragma once

#include <cstdint>

#include "userspace/option/slot.hpp"

namespace tcpqp::stock {

class Announcer {
public:
    Announcer(tcpqp_bpf_slot& shared, int socket, uint32_t seq) noexcept
        : shared_(shared), socket_(socket), seq_(seq), handed_(seq) {}

    // Room for one more message; asks TCP what was acknowledged if there seems to be none.
    [[nodiscard]] bool has_room() noexcept;
    // ... with every ACK that the program has told of.
    [[nodiscard]] bool has_room_by_wakeup() noexcept;
    // The next message of the stream; @m.seq is filled in.
    void announce(tcpqp_bpf_message m) noexcept;
    // TCP took @bytes.
    void took(uint32_t bytes) noexcept { handed_ += bytes; }

private:
    void retire() noexcept;

    tcpqp_bpf_slot& shared_;
    int socket_;
    uint32_t seq_;     // of the next message
    uint32_t handed_;  // of the next byte to hand to TCP
    uint32_t first_ = 0;
    uint32_t next_ = 0;
};

}  // namespace tcpqp::stock
