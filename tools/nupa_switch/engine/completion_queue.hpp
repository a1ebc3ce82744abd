// SPDX-License-Identifier: BSD-3-Clause
// A completion queue that its host and the switch write to, one at a time (struct nupa_cmd_cq).
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "budget.hpp"
#include "hash_index.hpp"
#include "host_memory.hpp"
#include "limits.hpp"
#include "pool.hpp"

struct ib_uverbs_wc;

namespace nupa {

class CompletionQueue {
public:
    // Copies and checks the page table.
    nupa_admin_status init(const HostMemory& memory, std::uint32_t id,
                           const nupa_cmd_cq& cmd) noexcept;

    std::uint32_t id() const noexcept { return id_; }
    // Becomes the owner, unless the host is it.  Never waits.
    bool take() noexcept;
    // The rest only between take() and give().
    std::uint32_t room() const noexcept;  // for so many more
    // The one that is @place behind the next; below room().
    void write(std::uint32_t place, const ib_uverbs_wc& wc) noexcept;
    // The application sees the next @count, which were written, and the host may be the owner.
    void give(std::uint32_t count) noexcept;
    // The host says whether somebody may sleep until a completion comes.
    bool says_waiting() const noexcept { return says_waiting_; }
    // Somebody may, and is to be told now.  After give(): who falls asleep looks once more.
    bool wake() noexcept;

    std::uint32_t users = 0;  // QPs that name it

private:
    friend class CqTable;
    std::uint32_t id_ = 0, mask_ = 0;
    bool says_waiting_ = false;  // NUPA_CQ_F_WAITING
    nupa_cq_ctl* ctl_ = nullptr;
    std::vector<std::byte*> pages_;
    std::size_t footprint_ = 0;
};

// Those of one port.
class CqTable {
public:
    CqTable(std::uint64_t seed, MemoryBudget& budget, std::size_t max) noexcept
        : budget_(budget), seed_(seed), max_(max) {}
    nupa_admin_status create(const HostMemory& memory, std::uint32_t id,
                             const nupa_cmd_cq& cmd) noexcept;
    // NUPA_E_INVALID while it has users.
    nupa_admin_status destroy(std::uint32_t id) noexcept;
    CompletionQueue* find(std::uint32_t id) const noexcept;
    std::size_t size() const noexcept { return ids_.size(); }
    void clear() noexcept;

private:
    std::uint32_t number(std::uint32_t id) const noexcept;
    void forget(std::uint32_t number) noexcept;

    MemoryBudget& budget_;
    Pool<CompletionQueue> cqs_;
    HashIndex ids_;
    std::uint64_t seed_;
    std::size_t max_;
};

}  // namespace nupa
