// SPDX-License-Identifier: BSD-3-Clause
#include "posts/doorbell.hpp"

#include <rdma/ib_user_verbs.h>
#include <sys/syscall.h>
#include <tcp_qp/tcp_qp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tcpqp::posts {
namespace {

constexpr size_t kWordBytes = 4;

constinit std::atomic<Queue*> owed{nullptr};  // by next_owed; only ever taken as a whole

uint32_t load(uint32_t& word) noexcept {
    return std::atomic_ref(word).load(std::memory_order_acquire);
}

// As the provider does.  An error is the queue pair's end, of which its completions tell.
void ring(const Queue& queue) noexcept {
    ib_uverbs_post_send_resp response;
    ib_uverbs_cmd_hdr header{};
    ib_uverbs_post_send body{};
    unsigned char command[sizeof header + sizeof body];
    header.command = IB_USER_VERBS_CMD_POST_SEND;
    header.in_words = sizeof command / kWordBytes;
    header.out_words = sizeof response / kWordBytes;
    body.response = reinterpret_cast<uintptr_t>(&response);
    body.qp_handle = queue.handle;
    body.wqe_size = sizeof(ib_uverbs_send_wr);
    std::memcpy(command, &header, sizeof header);
    std::memcpy(command + sizeof header, &body, sizeof body);
    (void)::syscall(SYS_write, queue.cmd_fd, command, sizeof command);
}

// If it is not watched any more, the kernel has looked at it after it said so.
bool must_ring(const Queue& queue) noexcept {
    return queue.ring != nullptr && load(TCP_QP_SQ_AWAKE(queue.ring)) != 0 &&
           load(TCP_QP_SQ_TAKEN(queue.ring)) != load(queue.ring->producer_index);
}

}  // namespace

bool leave_out(Queue& queue) noexcept {
    // between the index and what the kernel says, which has one between that and its look at the
    // index: one of us sees the other
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (load(TCP_QP_SQ_AWAKE(queue.ring)) == 0)
        return false;
    if (queue.owed.exchange(true, std::memory_order_acq_rel))
        return true;
    Queue* first = owed.load(std::memory_order_relaxed);
    do
        queue.next_owed = first;
    while (!owed.compare_exchange_weak(first, &queue, std::memory_order_release,
                                       std::memory_order_relaxed));
    return true;
}

void ring_owed_locked() noexcept {
    const int before = errno;
    Queue* queue = owed.exchange(nullptr, std::memory_order_acquire);
    while (queue != nullptr) {
        Queue* next = queue->next_owed;
        // before its indices are read: a post after that puts it into the list again
        queue->owed.exchange(false, std::memory_order_seq_cst);
        if (must_ring(*queue))
            ring(*queue);
        queue = next;
    }
    errno = before;
}

void ring_owed() noexcept {
    if (owed.load(std::memory_order_acquire) == nullptr)
        return;
    lock();
    ring_owed_locked();
    unlock();
}

void ring_owed_if_free() noexcept {
    if (owed.load(std::memory_order_relaxed) == nullptr || !try_lock())
        return;
    ring_owed_locked();
    unlock();
}

void forget_owed() noexcept { owed.store(nullptr, std::memory_order_relaxed); }

}  // namespace tcpqp::posts
