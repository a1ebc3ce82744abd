// SPDX-License-Identifier: BSD-3-Clause
// One sendmsg() of several messages: headers and small payload in a buffer of
// its own, large payload where the application has it.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <vector>

#include "userspace/base/limits.hpp"
#include "userspace/frames/frame.hpp"
#include "userspace/queue/cq.hpp"

namespace tcpqp::stock {

class SendBatch {
public:
    SendBatch(Qp& qp, size_t buffer_bytes)
        : op{Op::Kind::kBatch, &qp, this}, buffer_(buffer_bytes) {}

    void begin() noexcept;
    [[nodiscard]] bool has_room(const tcpqp_work& work) const noexcept;
    void add(const Frame& frame, const tcpqp_work& work) noexcept;
    // Option framing: the message alone; one of no bytes takes one.
    void add_bare(const tcpqp_work& work) noexcept;
    // ... a control message's one byte, which completes nothing.
    void add_control() noexcept;

    [[nodiscard]] const msghdr& message() const noexcept { return message_; }
    [[nodiscard]] bool sent() const noexcept { return bytes_ == 0; }
    // @count bytes were taken.
    void advance(size_t count) noexcept;

    Op op;
    size_t messages = 0;
    bool zerocopy = false;
    bool was_copied = false;     // ... and the kernel copied of it all the same
    bool in_kernel = false;      // its SEND_ZC was submitted and has not ended
    unsigned notifications = 0;  // the network still reads the buffers

private:
    void append(const void* at, size_t count) noexcept;

    std::vector<std::byte> buffer_;
    std::array<iovec, kBatchSegments> segments_{};
    msghdr message_{};
    size_t used_ = 0;  // of the buffer
    size_t bytes_ = 0;
};

}  // namespace tcpqp::stock
