// SPDX-License-Identifier: BSD-3-Clause
// A reliable queue pair on one completion queue.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>

#include "verbs/context.hpp"
#include "verbs/cq.hpp"

namespace tcpqp {

struct QpDepth {
    uint32_t sends = 0;
    uint32_t receives = 0;
    uint32_t sges = 1;  // of each work request
    int access = 0;     // IBV_ACCESS_REMOTE_*: what the peer may do
    uint32_t inline_bytes = 0;
    bool signal_all = true;  // a completion for every send, asked for or not
    ibv_srq* srq = nullptr;  // where receives come from, in place of the queue pair's own
};

// One buffer to send from or receive into; @cookie comes back in its completion.
struct Work {
    uint64_t cookie = 0;
    void* address = nullptr;
    uint32_t bytes = 0;
    uint32_t lkey = 0;
    uint32_t imm = 0;          // sends; host order
    bool without_imm = false;  // sends: no immediate on the wire
};

class QueuePair {
public:
    // In state INIT: receives may be posted, the socket attached.  Throws std::system_error.
    QueuePair(const Context& context, const CompletionQueue& cq, QpDepth depth);

    [[nodiscard]] uint32_t handle() const noexcept { return qp_->handle; }
    [[nodiscard]] ibv_qp* get() const noexcept { return qp_.get(); }

    // Each posts the whole batch in order (one doorbell for sends), or returns an errno.
    [[nodiscard]] int post_sends(std::span<const Work> works) noexcept;
    [[nodiscard]] int post_receives(std::span<const Work> works) noexcept;
    // librxe rings none for receives: this tells the kernel that there are new
    // ones, so that the peer gets credits now and not when a timer looks.
    [[nodiscard]] int ring_doorbell() noexcept;

private:
    struct Destroy {
        void operator()(ibv_qp* q) const noexcept { ibv_destroy_qp(q); }
    };
    std::unique_ptr<ibv_qp, Destroy> qp_;
};

}  // namespace tcpqp
