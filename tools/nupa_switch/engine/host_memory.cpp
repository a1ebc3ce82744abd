// SPDX-License-Identifier: BSD-3-Clause
#include "host_memory.hpp"

#include <algorithm>

namespace nupa {

bool HostMemory::add(std::uint64_t addr, std::span<std::byte> bytes) noexcept {
    if (bytes.empty() || addr + (bytes.size() - 1) < addr || count_ == regions_.size())
        return false;
    for (std::size_t i = 0; i < count_; i++) {
        const Region& r = regions_[i];
        if (addr <= r.addr + (r.bytes - 1) && r.addr <= addr + (bytes.size() - 1))
            return false;
    }
    regions_[count_++] = {addr, bytes.size(), bytes.data()};
    return true;
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
