// SPDX-License-Identifier: BSD-3-Clause
#include "ram.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace sim {

Ram::Ram(std::size_t bytes) : bytes_(bytes), mirror_(bytes) {
    if (!memory_.add(kBase, bytes_))
        throw std::logic_error("simulated memory");
}

std::uint64_t Ram::alloc(std::uint64_t bytes, std::uint64_t align) {
    const std::uint64_t at = (used_ + align - 1) / align * align;
    if (at + bytes > bytes_.size())
        throw std::logic_error("simulated memory is used up");
    used_ = at + bytes;
    return kBase + at;
}

void Ram::store(std::uint64_t addr, std::span<const std::byte> from) noexcept {
    std::memcpy(bytes_.data() + (addr - kBase), from.data(), from.size());
    std::memcpy(mirror_.data() + (addr - kBase), from.data(), from.size());
}

void Ram::fill(std::uint64_t addr, std::uint64_t bytes, std::uint8_t value) noexcept {
    std::memset(bytes_.data() + (addr - kBase), value, bytes);
    std::memset(mirror_.data() + (addr - kBase), value, bytes);
}

void Ram::accept(std::uint64_t addr, std::uint64_t bytes) noexcept {
    std::memcpy(mirror_.data() + (addr - kBase), bytes_.data() + (addr - kBase), bytes);
}

std::optional<std::uint64_t> Ram::stray() const noexcept {
    if (std::memcmp(bytes_.data(), mirror_.data(), used_) == 0)
        return std::nullopt;
    const auto at = std::mismatch(bytes_.begin(), bytes_.end(), mirror_.begin()).first;
    return kBase + static_cast<std::uint64_t>(at - bytes_.begin());
}

}  // namespace sim
