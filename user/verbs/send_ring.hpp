// SPDX-License-Identifier: BSD-3-Clause
// A queue pair's send queue, written without the provider, which rings the doorbell on each
// post: here it is rung when all is written, and in the system call that waits (cq_fd.hpp).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "verbs/context.hpp"

namespace tcpqp {

// The queue's only producer: ibv_post_send() on the same queue pair would write over it.
// One thread at a time.
class SendRing {
public:
    // Throws std::system_error; EPROTONOSUPPORT: another kind of device, or an older module.
    SendRing(const Context& context, const ibv_qp& qp);
    ~SendRing();
    SendRing(const SendRing&) = delete;
    SendRing& operator=(const SendRing&) = delete;

    // The chain as ibv_post_send() takes it, SENDs and WRITEs of one SGE at most; no doorbell.
    // 0, ENOMEM with none of it posted: the queue has no room.  EINVAL: inline data too long.
    [[nodiscard]] int post(const ibv_send_wr* chain) noexcept;
    // Of one work request, at most.
    [[nodiscard]] uint32_t inline_bytes() const noexcept { return inline_bytes_; }

private:
    [[nodiscard]] uint32_t room() const noexcept;
    void write(uint32_t index, const ibv_send_wr& wr) const noexcept;
    [[nodiscard]] bool fits(const ibv_send_wr& wr) const noexcept;

    std::span<unsigned char> memory_;
    uint32_t mask_ = 0, slot_bytes_ = 0, inline_bytes_ = 0;
    uint32_t next_ = 0;  // not masked
};

}  // namespace tcpqp
