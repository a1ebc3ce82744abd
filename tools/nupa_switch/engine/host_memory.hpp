// SPDX-License-Identifier: BSD-3-Clause
// The memory of the host behind one port, by the addresses that host uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "limits.hpp"

namespace nupa {

class HostMemory {
public:
    // False: empty, wraps, overlaps another region, or too many.
    // The mapping must outlive every MR, QP and packet that names it.
    bool add(std::uint64_t addr, std::span<std::byte> bytes) noexcept;
    // The region that add() was given for @addr; who has pointers into it keeps them.
    void remove(std::uint64_t addr) noexcept;
    void clear() noexcept { count_ = 0; }

    // nullptr unless [addr, addr + bytes) lies entirely inside one region; bytes > 0.
    std::byte* at(std::uint64_t addr, std::uint64_t bytes) const noexcept {
        for (std::size_t i = 0; i < count_; i++) {
            const Region& r = regions_[i];
            const std::uint64_t offset = addr - r.addr;  // wraps to huge when below
            if (offset < r.bytes && bytes != 0 && bytes <= r.bytes - offset)
                return r.base + offset;
        }
        return nullptr;
    }

private:
    struct Region {
        std::uint64_t addr;
        std::uint64_t bytes;
        std::byte* base;
    };
    std::array<Region, kMemoryRegionsMax> regions_{};
    std::size_t count_ = 0;
};

}  // namespace nupa
