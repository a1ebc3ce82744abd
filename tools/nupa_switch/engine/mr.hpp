// SPDX-License-Identifier: BSD-3-Clause
// Memory regions: key to {pd, bounds, access, pages}.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "budget.hpp"
#include "hash_index.hpp"
#include "host_memory.hpp"
#include "limits.hpp"
#include "mix.hpp"
#include "pool.hpp"
#include "reason.hpp"

namespace nupa {

class alignas(64) Mr {
public:
    // Reason::kPlaced when [addr, addr + bytes) may be used so; bytes > 0.
    Reason check(std::uint32_t pd, std::uint64_t addr, std::uint64_t bytes,
                 std::uint32_t access) const noexcept;
    // The longest contiguous run of checked memory from @addr, at most @bytes.
    std::span<std::byte> run(std::uint64_t addr, std::uint64_t bytes) const noexcept;
    std::uint64_t iova() const noexcept { return iova_; }
    std::uint64_t bytes() const noexcept { return bytes_; }

private:
    friend class MrTable;
    // @cmd is sane in itself; usable once all its pages were added.
    nupa_admin_status init(std::uint32_t key, const nupa_cmd_mr& cmd) noexcept;
    nupa_admin_status add(const HostMemory& memory, std::uint64_t page) noexcept;
    std::byte* add_leased(const HostMemory& memory, std::uint64_t addr,
                          std::uint64_t bytes) noexcept;
    void unpin() const noexcept;
    std::size_t footprint() const noexcept;

    std::uint32_t key_ = 0;
    std::uint32_t pd_ = 0;
    std::uint64_t iova_ = 0;
    std::uint64_t bytes_ = 0;
    std::uint32_t access_ = 0;
    std::uint8_t page_shift_ = 0;
    std::vector<std::byte*> pages_;         // the first used byte of each page
    const LeasedMemory* window_ = nullptr;  // that some of them are in, all in one lease
    std::uint64_t lease_ = 0;
};

class MrTable {
public:
    MrTable(std::uint64_t seed, MemoryBudget& budget, std::size_t max = kMrsMaxDefault) noexcept
        : budget_(budget), seed_(seed), max_(max) {}
    // The page table is read from @memory and checked before anything changes.
    nupa_admin_status reg(const HostMemory& memory, std::uint32_t key,
                          const nupa_cmd_mr& cmd) noexcept;
    // The same in parts, since a table may be long: after NUPA_OK, go_on() until it answers.  Each
    // entry is read once, whatever its host does to it meanwhile; nobody finds the region before
    // the end.  One at a time; clear() takes it back.
    nupa_admin_status begin(const HostMemory& memory, std::uint32_t key,
                            const nupa_cmd_mr& cmd) noexcept;
    std::optional<nupa_admin_status> go_on(const HostMemory& memory,
                                           std::uint32_t pages_max) noexcept;
    // When it returns nothing can be placed through @key any more.
    nupa_admin_status dereg(std::uint32_t key) noexcept;
    const Mr* find(std::uint32_t key) const noexcept {
        if (last_ && last_->key_ == key)
            return last_;
        const std::uint32_t n = number(key);
        return last_ = n == HashIndex::kNone ? nullptr : &mrs_[n];
    }
    std::size_t size() const noexcept { return keys_.size(); }
    // All of them.  Leases that they were in are not told: Leases::unpin_all().
    void clear() noexcept;

private:
    std::uint32_t number(std::uint32_t key) const noexcept {
        return keys_.find(hash_number(key, seed_),
                          [&](std::uint32_t n) { return mrs_[n].key_ == key; });
    }

    struct Registration {
        std::uint32_t number;
        const std::byte* table;
        std::uint32_t pages, done;
    };
    void drop(std::uint32_t number) noexcept;

    MemoryBudget& budget_;
    std::optional<Registration> under_way_;
    Pool<Mr> mrs_;
    HashIndex keys_;
    mutable const Mr* last_ = nullptr;  // bursts ask for the same region again and again
    std::uint64_t seed_;
    std::size_t max_;
};

}  // namespace nupa
