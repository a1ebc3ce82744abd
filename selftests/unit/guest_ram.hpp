// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <system_error>

namespace test {

// RAM of zeroes, between two pages that nobody may touch.  It costs what is touched of it: a test
// touches little, and first accesses are dear where page tables are shadowed.
class GuestRam {
public:
    // @bytes is a multiple of the page size.
    explicit GuestRam(std::size_t bytes) : bytes_(bytes) {
        void* const at = ::mmap(nullptr, bytes + 2 * kGuardBytes, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            throw std::system_error(errno, std::generic_category(), "mmap");
        at_ = static_cast<std::byte*>(at) + kGuardBytes;
        if (::mprotect(at_, bytes, PROT_READ | PROT_WRITE) != 0)
            throw std::system_error(errno, std::generic_category(), "mprotect");
    }
    GuestRam(const GuestRam&) = delete;
    GuestRam& operator=(const GuestRam&) = delete;
    ~GuestRam() { ::munmap(at_ - kGuardBytes, bytes_ + 2 * kGuardBytes); }

    std::span<std::byte> bytes() noexcept { return {at_, bytes_}; }

private:
    static constexpr std::size_t kGuardBytes = 4096;
    std::byte* at_;
    std::size_t bytes_;
};

}  // namespace test
