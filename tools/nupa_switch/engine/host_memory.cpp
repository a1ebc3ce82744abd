// SPDX-License-Identifier: BSD-3-Clause
#include "host_memory.hpp"

#include <algorithm>

namespace nupa {

bool HostMemory::is_free(std::uint64_t addr, std::uint64_t bytes) const noexcept {
    const auto apart = [&](std::uint64_t other, std::uint64_t other_bytes) {
        return addr > other + (other_bytes - 1) || other > addr + (bytes - 1);
    };
    if (bytes == 0 || addr + (bytes - 1) < addr)
        return false;
    for (std::size_t i = 0; i < count_; i++)
        if (!apart(regions_[i].addr, regions_[i].bytes))
            return false;
    return !leased_.window || apart(leased_.addr, leased_.window->bytes());
}

bool HostMemory::add(std::uint64_t addr, std::span<std::byte> bytes) noexcept {
    if (count_ == regions_.size() || !is_free(addr, bytes.size()))
        return false;
    regions_[count_++] = {addr, bytes.size(), bytes.data()};
    return true;
}

bool HostMemory::add_leased(std::uint64_t addr, const LeasedMemory& window) noexcept {
    if (leased_.window || !is_free(addr, window.bytes()))
        return false;
    leased_ = {addr, &window};
    return true;
}

std::optional<HostMemory::Leased> HostMemory::leased_at(std::uint64_t addr,
                                                        std::uint64_t bytes) const noexcept {
    if (!leased_.window)
        return std::nullopt;
    const std::uint64_t offset = addr - leased_.addr;  // wraps to huge when below
    const auto lease = leased_.window->holding(offset, bytes);
    if (!lease)
        return std::nullopt;
    return Leased{leased_.window, *lease, leased_.window->data() + offset};
}

void HostMemory::remove(std::uint64_t addr) noexcept {
    const auto end = regions_.begin() + static_cast<std::ptrdiff_t>(count_);
    const auto at =
        std::find_if(regions_.begin(), end, [addr](const Region& r) { return r.addr == addr; });
    if (at == end)
        return;
    std::copy(at + 1, end, at);
    count_--;
}

}  // namespace nupa
