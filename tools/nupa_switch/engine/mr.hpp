// SPDX-License-Identifier: BSD-3-Clause
// Memory regions: key to {pd, bounds, access, pages}.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "host_memory.hpp"
#include "limits.hpp"
#include "reason.hpp"

namespace nupa {

class Mr {
public:
    // Reason::kPlaced when [addr, addr + bytes) may be used so; bytes > 0.
    Reason check(std::uint32_t pd, std::uint64_t addr, std::uint64_t bytes,
                 std::uint32_t access) const noexcept;
    // The longest contiguous run of checked memory from @addr, at most @bytes.
    std::span<std::byte> run(std::uint64_t addr, std::uint64_t bytes) const noexcept;

private:
    friend class MrTable;
    std::uint64_t iova_ = 0;
    std::uint64_t bytes_ = 0;
    std::uint32_t pd_ = 0;
    std::uint32_t access_ = 0;
    std::uint8_t page_shift_ = 0;
    std::vector<std::byte*> pages_;  // the first used byte of each page
};

class MrTable {
public:
    explicit MrTable(std::size_t max = kMrsMaxDefault) noexcept : max_(max) {}
    // The page table is read from @memory and checked before anything changes.
    nupa_admin_status reg(const HostMemory& memory, std::uint32_t key,
                          const nupa_cmd_mr& cmd) noexcept;
    // When it returns nothing can be placed through @key any more.
    nupa_admin_status dereg(std::uint32_t key) noexcept;
    const Mr* find(std::uint32_t key) const noexcept;
    std::size_t size() const noexcept { return mrs_.size(); }
    void clear() noexcept { mrs_.clear(); }

private:
    std::unordered_map<std::uint32_t, std::unique_ptr<Mr>> mrs_;
    std::size_t max_;
};

}  // namespace nupa
