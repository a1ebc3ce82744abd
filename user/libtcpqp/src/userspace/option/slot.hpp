// SPDX-License-Identifier: BSD-3-Clause
// A connection that tcpqp-bpf admitted, the memory shared with its BPF program, and
// what wakes us when there is something new.
#pragma once

#include <cstdint>
#include <memory>

#include "userspace/option/wakeup.hpp"

namespace tcpqp::stock {

class Slot {
public:
    // Asks the helper for @socket.  nullptr, with an enum tcpqp_reason: NO_BPF_HELPER
    // or BPF_REFUSED.  May throw std::bad_alloc.
    static std::unique_ptr<Slot> open(int socket, uint32_t& reason);
    ~Slot();
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

    [[nodiscard]] tcpqp_bpf_slot& shared() const noexcept { return *shared_; }
    // Where the streams stand: the next byte to write, the next to read.
    [[nodiscard]] uint32_t tx_seq() const noexcept { return tx_seq_; }
    [[nodiscard]] uint32_t rx_seq() const noexcept { return rx_seq_; }
    // wakeup_fd() will be readable once @what, TCPQP_BPF_AWAITS_*, came; look once more first.
    void await(uint32_t what) noexcept { wakeup_.await(*shared_, what); }
    [[nodiscard]] int wakeup_fd() const noexcept { return wakeup_.fd(); }
    // No options any more.
    void stop() const noexcept;

private:
    Slot(int socket, void* at, Wakeup wakeup) noexcept;
    [[nodiscard]] bool start() noexcept;
    [[nodiscard]] bool read_positions() noexcept;

    int socket_;
    tcpqp_bpf_slot* shared_;
    Wakeup wakeup_;
    uint32_t tx_seq_ = 0;
    uint32_t rx_seq_ = 0;
};

}  // namespace tcpqp::stock
