// SPDX-License-Identifier: BSD-3-Clause
// Whole pages of anonymous memory.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <span>

namespace tcpqp {

class Memory {
public:
    // Throws std::bad_alloc.
    explicit Memory(size_t bytes)
        : bytes_(bytes),
          at_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        if (at_ == MAP_FAILED)
            throw std::bad_alloc();
    }
    ~Memory() { ::munmap(at_, bytes_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(at_); }
    [[nodiscard]] size_t size() const noexcept { return bytes_; }
    [[nodiscard]] std::span<std::byte> all() const noexcept { return {data(), bytes_}; }

private:
    size_t bytes_;
    void* at_;
};

}  // namespace tcpqp
