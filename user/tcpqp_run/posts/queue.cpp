// SPDX-License-Identifier: BSD-3-Clause
#include "posts/queue.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <tcp_qp/tcp_qp.h>

#include <new>

#include "posts/doorbell.hpp"
#include "verbs/ioctl.hpp"

namespace tcpqp::posts {
namespace {

constexpr size_t kPlaces = 4096;
constexpr unsigned kAlignedBits = 5;  // of what malloc() gives

constinit std::atomic<Queue*> table[kPlaces]{};
constinit Queue* unused = nullptr;  // by next; under the lock
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

std::atomic<Queue*>& place_of(const ibv_qp* qp) noexcept {
    const uint64_t at = reinterpret_cast<uintptr_t>(qp) >> kAlignedBits;
    return table[(at ^ (at >> 12)) % kPlaces];
}

// Without the lock one may be missed, if it or its neighbour is forgotten meanwhile.
Queue* find(const ibv_qp* qp) noexcept {
    Queue* queue = place_of(qp).load(std::memory_order_acquire);
    while (queue != nullptr && queue->qp.load(std::memory_order_acquire) != qp)
        queue = queue->next.load(std::memory_order_acquire);
    return queue;
}

// Another module, an older one, or a kind of queue pair that is not watched: there is no ring.
void map_ring(Queue& queue) noexcept {
    tcp_qp_sq sq{};
    std::array attrs{value_attr(TCP_QP_ATTR_SQ_HANDLE, queue.handle),
                     pointer_attr(TCP_QP_ATTR_SQ_RESP, &sq, sizeof(sq))};
    if (invoke(queue.cmd_fd, UVERBS_OBJECT_QP, TCP_QP_METHOD_SQ, attrs) != 0 ||
        (sq.flags & TCP_QP_SQ_F_WATCHED) == 0)
        return;
    void* at = ::mmap(nullptr, sq.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, queue.cmd_fd,
                      static_cast<off_t>(sq.offset));
    if (at == MAP_FAILED)
        return;
    queue.ring = static_cast<rxe_queue_buf*>(at);
    queue.ring_bytes = sq.bytes;
    std::atomic_ref(TCP_QP_SQ_WANTED(queue.ring)).store(1, std::memory_order_relaxed);
}

Queue* make(ibv_qp* qp) noexcept {
    Queue* queue = unused;
    if (queue != nullptr)
        unused = queue->next.load(std::memory_order_relaxed);
    else if ((queue = new (std::nothrow) Queue) == nullptr)
        return nullptr;
    queue->number = qp->qp_num;
    queue->handle = qp->handle;
    queue->context = qp->context;
    queue->cmd_fd = qp->context->cmd_fd;
    map_ring(*queue);
    std::atomic<Queue*>& place = place_of(qp);
    queue->next.store(place.load(std::memory_order_relaxed), std::memory_order_relaxed);
    queue->qp.store(qp, std::memory_order_release);
    place.store(queue, std::memory_order_release);
    return queue;
}

// It may still be in the list of those that are owed a doorbell, and lives on there.
void drop(std::atomic<Queue*>& at, Queue& queue) noexcept {
    at.store(queue.next.load(std::memory_order_relaxed), std::memory_order_release);
    queue.qp.store(nullptr, std::memory_order_release);
    if (queue.ring != nullptr)
        ::munmap(queue.ring, queue.ring_bytes);
    queue.ring = nullptr;
    queue.next.store(unused, std::memory_order_release);
    unused = &queue;
}

template <typename Which>
void drop_all(std::atomic<Queue*>& place, Which which) noexcept {
    std::atomic<Queue*>* at = &place;
    while (Queue* queue = at->load(std::memory_order_relaxed)) {
        if (which(*queue))
            drop(*at, *queue);
        else
            at = &queue->next;
    }
}

}  // namespace

void lock() noexcept { ::pthread_mutex_lock(&mutex); }

bool try_lock() noexcept { return ::pthread_mutex_trylock(&mutex) == 0; }

void unlock() noexcept { ::pthread_mutex_unlock(&mutex); }

void begin_anew_in_children() noexcept {
    // whoever had the lock is not there, and what he had half done is not looked at
    ::pthread_atfork(nullptr, nullptr, [] {
        ::pthread_mutex_init(&mutex, nullptr);
        forget_owed();
        for (auto& place : table)
            if (place.load(std::memory_order_relaxed) != nullptr)  // or each fork() copies its page
                place.store(nullptr, std::memory_order_relaxed);
        unused = nullptr;
    });
}

Queue* queue_of(ibv_qp* qp) noexcept {
    Queue* queue = find(qp);
    if (queue != nullptr && queue->number == qp->qp_num) [[likely]]
        return queue;
    const int before = errno;
    lock();
    // another's that was here before, and destroyed where we did not see it
    drop_all(place_of(qp), [&](const Queue& q) {
        return q.qp.load(std::memory_order_relaxed) == qp && q.number != qp->qp_num;
    });
    queue = find(qp);
    if (queue == nullptr)
        queue = make(qp);
    unlock();
    errno = before;
    return queue;
}

void forget_queue(const ibv_qp* qp) noexcept {
    lock();
    ring_owed_locked();
    drop_all(place_of(qp),
             [=](const Queue& q) { return q.qp.load(std::memory_order_relaxed) == qp; });
    unlock();
}

void forget_queues(const ibv_context* context) noexcept {
    lock();
    ring_owed_locked();
    for (auto& place : table)
        drop_all(place, [=](const Queue& q) { return q.context == context; });
    unlock();
}

}  // namespace tcpqp::posts
