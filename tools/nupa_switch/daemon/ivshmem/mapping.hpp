// SPDX-License-Identifier: BSD-3-Clause
// A shared mapping with one owner.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <string>
#include <utility>

#include "event/fd.hpp"

namespace nupa::daemon {

class Mapping {
public:
    Mapping() = default;
    // Maps @bytes of @fd shared and writable; throws std::system_error naming @what.
    Mapping(int fd, size_t bytes, const std::string& what) : bytes_(bytes) {
        base_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (base_ == MAP_FAILED)
            throw_errno("mmap " + what);
    }
    Mapping(Mapping&& other) noexcept
        : base_(std::exchange(other.base_, MAP_FAILED)), bytes_(std::exchange(other.bytes_, 0)) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(base_, other.base_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (base_ != MAP_FAILED)
            ::munmap(base_, bytes_);
    }

    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(base_); }
    [[nodiscard]] size_t bytes() const noexcept { return bytes_; }
    explicit operator bool() const noexcept { return base_ != MAP_FAILED; }

private:
    void* base_ = MAP_FAILED;
    size_t bytes_ = 0;
};

}  // namespace nupa::daemon
