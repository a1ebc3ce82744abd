// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/option/wakeup.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

namespace tcpqp::stock {
namespace {

size_t page_bytes() noexcept { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

// nullptr: not to be had.
void* map_page(int ring, int protection, size_t page) noexcept {
    void* at = ::mmap(nullptr, page_bytes(), protection, MAP_SHARED, ring,
                      static_cast<off_t>(page * page_bytes()));
    return at == MAP_FAILED ? nullptr : at;
}

void unmap_page(const void* at) noexcept {
    if (at != nullptr)
        ::munmap(const_cast<void*>(at), page_bytes());
}

}  // namespace

std::optional<Wakeup> Wakeup::open(Fd ring) noexcept {
    void* consumer = map_page(ring.get(), PROT_READ | PROT_WRITE, 0);
    void* producer = map_page(ring.get(), PROT_READ, 1);
    if (consumer != nullptr && producer != nullptr)
        return Wakeup(std::move(ring), consumer, producer);
    unmap_page(consumer);
    unmap_page(producer);
    return std::nullopt;
}

Wakeup::Wakeup(Fd ring, void* consumer, void* producer) noexcept
    : ring_(std::move(ring)),
      consumer_(static_cast<Position*>(consumer)),
      producer_(static_cast<const Position*>(producer)) {}

Wakeup::Wakeup(Wakeup&& other) noexcept
    : ring_(std::move(other.ring_)),
      consumer_(std::exchange(other.consumer_, nullptr)),
      producer_(std::exchange(other.producer_, nullptr)) {}

Wakeup::~Wakeup() {
    unmap_page(consumer_);
    unmap_page(producer_);
}

// A record that is still being written is passed over too: what it tells is older than the
// caller's next look.
void Wakeup::await(tcpqp_bpf_slot& slot, uint32_t what) noexcept {
    consumer_->store(producer_->load(std::memory_order_acquire), std::memory_order_release);
    __atomic_store_n(&slot.awaits, what, __ATOMIC_SEQ_CST);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace tcpqp::stock
