// SPDX-License-Identifier: BSD-3-Clause
// Queues of an application that its host and the switch both move, one at a time; those of one
// port, by the host's numbers.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>
#include <new>

#include "budget.hpp"
#include "hash_index.hpp"
#include "host_memory.hpp"
#include "mix.hpp"
#include "pool.hpp"

namespace nupa {

class HostQueue {
public:
    std::uint32_t id() const noexcept { return id_; }

    std::uint32_t users = 0;  // QPs that name it

protected:
    // Never waits.  @owner: enum nupa_cq_owner.
    static bool own(std::uint32_t& owner) noexcept {
        std::uint32_t none = NUPA_CQ_OWNER_NONE;
        return __atomic_compare_exchange_n(&owner, &none, NUPA_CQ_OWNER_SWITCH, false,
                                           __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    }
    // After all that was written.
    static void disown(std::uint32_t& owner) noexcept {
        __atomic_store_n(&owner, NUPA_CQ_OWNER_NONE, __ATOMIC_RELEASE);
    }

private:
    template <class Queue>
    friend class QueueTable;
    std::uint32_t id_ = 0;
    std::size_t footprint_ = 0;
};

// Queue: a HostQueue with a Command that has pages, and init() of it.
template <class Queue>
class QueueTable {
public:
    QueueTable(std::uint64_t seed, MemoryBudget& budget, std::size_t max) noexcept
        : budget_(budget), seed_(seed), max_(max) {}

    nupa_admin_status create(const HostMemory& memory, std::uint32_t id,
                             const typename Queue::Command& cmd) noexcept {
        if (find(id))
            return NUPA_E_EXISTS;
        if (size() >= max_)
            return NUPA_E_NOSPACE;
        if (cmd.pages > kPagesMax)
            return NUPA_E_INVALID;
        const std::size_t footprint = sizeof(Queue) + cmd.pages * sizeof(std::byte*) + kIndexBytes;
        if (!budget_.take(footprint))
            return NUPA_E_QUOTA;
        try {
            ids_.make_room();
            queues_.reserve();
        } catch (const std::bad_alloc&) {
            budget_.give_back(footprint);
            return NUPA_E_NOSPACE;
        }
        const std::uint32_t n = queues_.take();
        queues_[n].id_ = id;
        queues_[n].footprint_ = footprint;
        const nupa_admin_status status = queues_[n].init(memory, cmd);
        if (status != NUPA_OK) {
            forget(n);
            return status;
        }
        ids_.insert(hash_number(id, seed_), n);
        return NUPA_OK;
    }
    // NUPA_E_INVALID while it has users.
    nupa_admin_status destroy(std::uint32_t id) noexcept {
        const std::uint32_t n = number(id);
        if (n == HashIndex::kNone)
            return NUPA_E_NOENT;
        if (queues_[n].users)
            return NUPA_E_INVALID;
        ids_.erase(hash_number(id, seed_), n);
        forget(n);
        return NUPA_OK;
    }
    Queue* find(std::uint32_t id) const noexcept {
        const std::uint32_t n = number(id);
        return n == HashIndex::kNone ? nullptr : &queues_[n];
    }
    std::size_t size() const noexcept { return ids_.size(); }
    void clear() noexcept {
        ids_.clear();
        queues_.clear();
    }

private:
    static constexpr std::size_t kIndexBytes = 16;
    static constexpr std::uint32_t kPagesMax = NUPA_CQ_PAGES_MAX;  // what a budget is asked for

    std::uint32_t number(std::uint32_t id) const noexcept {
        return ids_.find(hash_number(id, seed_),
                         [&](std::uint32_t n) { return queues_[n].id_ == id; });
    }
    void forget(std::uint32_t number) noexcept {
        budget_.give_back(queues_[number].footprint_);
        queues_.give_back(number);
    }

    MemoryBudget& budget_;
    Pool<Queue> queues_;
    HashIndex ids_;
    std::uint64_t seed_;
    std::size_t max_;
};

}  // namespace nupa
