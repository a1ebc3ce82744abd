// SPDX-License-Identifier: BSD-3-Clause
// One host's window to a pool: where it is mapped, and what of it may be used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "leases.hpp"

namespace nupa {

class LeasedMemory {
public:
    LeasedMemory(Leases& leases, Leases::Owner owner) noexcept : leases_(leases), owner_(owner) {}

    // Where the window is mapped from now on; empty: nowhere, and nothing may point into it.
    void map(std::span<std::byte> window) noexcept { window_ = window; }
    std::size_t bytes() const noexcept { return window_.size(); }
    std::byte* data() const noexcept { return window_.data(); }

    // For one access: nullptr unless all of it is leased.
    std::byte* at(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        return within(offset, bytes) && leases_.covers(owner_, offset, bytes)
                   ? window_.data() + offset
                   : nullptr;
    }
    // For a region: the lease that holds all of it.  It stays while it is pinned.
    std::optional<std::uint64_t> holding(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        return within(offset, bytes) ? leases_.holding(owner_, offset, bytes) : std::nullopt;
    }
    void pin(std::uint64_t lease) const noexcept { leases_.pin(lease); }
    void unpin(std::uint64_t lease) const noexcept { leases_.unpin(lease); }

private:
    bool within(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        return bytes != 0 && offset < window_.size() && bytes <= window_.size() - offset;
    }

    Leases& leases_;
    Leases::Owner owner_;
    std::span<std::byte> window_;
};

}  // namespace nupa
