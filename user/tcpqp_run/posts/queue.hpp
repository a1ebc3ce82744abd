// SPDX-License-Identifier: BSD-3-Clause
// The send queues of a program's queue pairs: where each says whether it is watched (tcp_qp.h).
//
// A post finds its queue pair's without a lock.  So the memory of a Queue is never given back, only
// used again, and what a post finds is its own: nobody posts to a queue pair that is destroyed.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_user_rxe.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tcpqp::posts {

struct Queue {
    std::atomic<ibv_qp*> qp{nullptr};   // whose; none: free
    std::atomic<Queue*> next{nullptr};  // of the same place in the table
    uint32_t number = 0, handle = 0;
    ibv_context* context = nullptr;
    int cmd_fd = -1;
    rxe_queue_buf* ring = nullptr;  // mapped; none: each post rings, as it would without us
    size_t ring_bytes = 0;
    std::atomic<bool> owed{
        false};  // a doorbell was left out since we looked, and it is in the list
    Queue* next_owed = nullptr;
};

// The queue pair's, made when it is first asked for; none: no memory.
[[nodiscard]] Queue* queue_of(ibv_qp* qp) noexcept;

// The queue pair, or all of the context's, are about to go.
void forget_queue(const ibv_qp* qp) noexcept;
void forget_queues(const ibv_context* context) noexcept;

// Who makes or forgets queues, and who looks at those that are owed a doorbell, one at a time.
void lock() noexcept;
[[nodiscard]] bool try_lock() noexcept;
void unlock() noexcept;
// A child of fork() finds it free, and no queue: what it posts to makes one anew.
void begin_anew_in_children() noexcept;

}  // namespace tcpqp::posts
