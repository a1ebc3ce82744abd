// SPDX-License-Identifier: BSD-3-Clause
#include "host_memory.hpp"

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

}  // namespace nupa
