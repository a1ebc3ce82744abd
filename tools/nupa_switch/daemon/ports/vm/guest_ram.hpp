// SPDX-License-Identifier: BSD-3-Clause
// Guest RAM as QEMU's q35 lays out one memory-backend-file.
#pragma once

#include <string>

#include "engine/host_memory.hpp"
#include "ivshmem/mapping.hpp"

namespace nupa::daemon {

// q35: from kLowLimitBytes of RAM on, kLowBytes lie below 4 GiB and the rest at 4 GiB.
inline constexpr uint64_t kQ35LowLimitBytes = 0xb0000000;
inline constexpr uint64_t kQ35LowBytes = 0x80000000;
inline constexpr uint64_t kQ35HighBase = 1ull << 32;

class GuestRam {
public:
    GuestRam() = default;
    // Maps the file, which must exist with its final size; throws std::system_error.
    explicit GuestRam(const std::string& path);

    // Guest-physical addresses of the mapping; it must outlive @memory's users.
    void describe(HostMemory& memory) const noexcept;
    explicit operator bool() const noexcept { return static_cast<bool>(map_); }

private:
    Mapping map_;
};

}  // namespace nupa::daemon
