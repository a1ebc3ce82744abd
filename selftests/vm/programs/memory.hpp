// SPDX-License-Identifier: BSD-3-Clause
// Anonymous pages of one's own: nothing else of the process shares them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "verbs/fd.hpp"

namespace nupa::programs {

class Pages {
public:
    explicit Pages(size_t bytes)
        : bytes_(bytes),
          at_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        if (at_ == MAP_FAILED)
            tcpqp::throw_errno("mmap");
    }
    Pages(Pages&& other) noexcept
        : bytes_(std::exchange(other.bytes_, 0)), at_(std::exchange(other.at_, MAP_FAILED)) {}
    Pages& operator=(Pages&&) = delete;
    ~Pages() {
        if (at_ != MAP_FAILED)
            munmap(at_, bytes_);
    }

    [[nodiscard]] std::span<uint8_t> bytes() const noexcept {
        return {static_cast<uint8_t*>(at_), bytes_};
    }

private:
    size_t bytes_;
    void* at_;
};

}  // namespace nupa::programs
