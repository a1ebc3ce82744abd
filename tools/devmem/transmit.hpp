// SPDX-License-Identifier: BSD-3-Clause
// sendmsg(MSG_ZEROCOPY) from a dma-buf: a control message names it, the pieces of the call are
// offsets in it, and the socket's error queue says when no packet has the bytes any more.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tcpqp::devmem {

class Transmitter {
public:
    // @dmabuf_id is of a TransmitBinding.  Throws std::system_error.
    Transmitter(int socket, uint32_t dmabuf_id);

    // Sends what is at @at in the dma-buf; returns when TCP has all of it.  Throws
    // std::system_error.
    void send(uint64_t at, size_t bytes);
    // Returns when all that was sent may be written over; throws.
    void finish();
    [[nodiscard]] uint64_t calls() const noexcept { return calls_; }

private:
    size_t send_some(uint64_t at, size_t bytes);
    void reap(bool wait);
    bool reap_one();

    int socket_;
    uint32_t dmabuf_id_;
    uint64_t calls_ = 0;   // each has a number, from 0 on
    uint64_t reaped_ = 0;  // of them, those that the kernel is through with
};

}  // namespace tcpqp::devmem
