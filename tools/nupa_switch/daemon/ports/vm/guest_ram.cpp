// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/guest_ram.hpp"

#include <fcntl.h>
#include <sys/stat.h>

namespace nupa::daemon {

GuestRam::GuestRam(const std::string& path) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat st {};
    if (!fd || ::fstat(fd.get(), &st) < 0)
        throw_errno("guest memory " + path);
    if (st.st_size <= 0) {
        errno = EINVAL;
        throw_errno("guest memory " + path + " is empty");
    }
    map_ = Mapping(fd.get(), static_cast<size_t>(st.st_size), path);
}

void GuestRam::describe(HostMemory& memory) const noexcept {
    std::span<std::byte> all(map_.data(), map_.bytes());
    if (map_.bytes() < kQ35LowLimitBytes) {
        memory.add(0, all);
        return;
    }
    memory.add(0, all.first(kQ35LowBytes));
    memory.add(kQ35HighBase, all.subspan(kQ35LowBytes));
}

}  // namespace nupa::daemon
