// SPDX-License-Identifier: BSD-3-Clause
// A host's memory and the mirror of what it must contain at this moment.
//
// Everything that the host's CPU writes goes through store(), which writes both.
// What the engine writes appears in memory alone; once the write is judged right,
// accept() brings the mirror up to date.  Any other difference is a stray write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "engine/host_memory.hpp"

namespace sim {

inline constexpr std::uint64_t kPageBytes = 4096;

class Ram {
public:
    explicit Ram(std::size_t bytes);
    Ram(const Ram&) = delete;
    Ram& operator=(const Ram&) = delete;

    // Set-up: throws std::logic_error when memory is used up.
    std::uint64_t alloc(std::uint64_t bytes, std::uint64_t align);

    const nupa::HostMemory& memory() const noexcept { return memory_; }
    const std::byte* at(std::uint64_t addr) const noexcept {
        return bytes_.data() + (addr - kBase);
    }
    bool contains(const std::byte* p, std::size_t n) const noexcept {
        return p >= bytes_.data() && n <= bytes_.size() &&
               static_cast<std::size_t>(p - bytes_.data()) <= bytes_.size() - n;
    }
    std::uint64_t addr_of(const std::byte* p) const noexcept {
        return kBase + static_cast<std::uint64_t>(p - bytes_.data());
    }

    void store(std::uint64_t addr, std::span<const std::byte> from) noexcept;
    template <class T>
    void put(std::uint64_t addr, T value) noexcept {
        store(addr, std::as_bytes(std::span(&value, 1)));
    }
    template <class T>
    T get(std::uint64_t addr) const noexcept {
        T value;
        std::memcpy(&value, at(addr), sizeof value);
        return value;
    }
    void fill(std::uint64_t addr, std::uint64_t bytes, std::uint8_t value) noexcept;
    void accept(std::uint64_t addr, std::uint64_t bytes) noexcept;
    // Address of the first byte that is not what it must be, of all that was allocated.
    std::optional<std::uint64_t> stray() const noexcept;

private:
    static constexpr std::uint64_t kBase = 1 << 20;

    std::vector<std::byte> bytes_, mirror_;
    std::uint64_t used_ = 0;
    nupa::HostMemory memory_;
};

}  // namespace sim
