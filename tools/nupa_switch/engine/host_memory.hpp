// SPDX-License-Identifier: BSD-3-Clause
// The memory of the host behind one port, by the addresses that host uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "leased_memory.hpp"
#include "limits.hpp"

namespace nupa {

// A field that the host may write at any time.
inline std::uint32_t load(const std::uint32_t& field) noexcept {
    return __atomic_load_n(&field, __ATOMIC_RELAXED);
}

class HostMemory {
public:
    // False: empty, wraps, overlaps another region, or too many.
    // The mapping must outlive every MR, QP and packet that names it.
    bool add(std::uint64_t addr, std::span<std::byte> bytes) noexcept;
    // The region that add() was given for @addr; who has pointers into it keeps them.
    void remove(std::uint64_t addr) noexcept;
    // The same for a window to a pool, of which a host has one: @window outlives this object.
    bool add_leased(std::uint64_t addr, const LeasedMemory& window) noexcept;
    void remove_leased() noexcept { leased_ = {}; }
    void clear() noexcept {
        count_ = 0;
        leased_ = {};
    }

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
    // The same, also in the window: for payload that is sent, looked up each time, as a lease may
    // end.
    std::byte* payload_at(std::uint64_t addr, std::uint64_t bytes) const noexcept {
        std::byte* const here = at(addr, bytes);
        return here || !leased_.window ? here : leased_.window->at(addr - leased_.addr, bytes);
    }
    // Where @addr lies in the window, for who keeps pointers to it; empty: there is none, or it is
    // no lease.
    struct Leased {
        const LeasedMemory* window;
        std::uint64_t lease;
        std::byte* at;
    };
    std::optional<Leased> leased_at(std::uint64_t addr, std::uint64_t bytes) const noexcept;

private:
    struct Region {
        std::uint64_t addr;
        std::uint64_t bytes;
        std::byte* base;
    };
    struct Window {
        std::uint64_t addr = 0;
        const LeasedMemory* window = nullptr;
    };
    bool is_free(std::uint64_t addr, std::uint64_t bytes) const noexcept;

    std::array<Region, kMemoryRegionsMax> regions_{};
    std::size_t count_ = 0;
    Window leased_;
};

}  // namespace nupa
