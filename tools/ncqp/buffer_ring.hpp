// SPDX-License-Identifier: BSD-3-Clause
// Equal buffers in one registered, page-aligned piece of memory.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fd.hpp"
#include "limits.hpp"
#include "verbs/context.hpp"
#include "verbs/mr.hpp"

namespace ncqp {

class BufferRing {
public:
    // At most @slots, fewer if they would exceed kRingMaxBytes.  Throws std::system_error.
    BufferRing(const tcpqp::Context& context, uint64_t slot_bytes, uint32_t slots)
        : slot_bytes_(slot_bytes),
          slots_(static_cast<uint32_t>(std::clamp<uint64_t>(kRingMaxBytes / slot_bytes, 1, slots))),
          memory_(slot_bytes_ * slots_),
          mr_(context, memory_.at, memory_.bytes, IBV_ACCESS_LOCAL_WRITE) {
        if (!mr_)
            tcpqp::throw_errno("register memory (see `ulimit -l`)");
    }

    [[nodiscard]] uint32_t slots() const noexcept { return slots_; }
    [[nodiscard]] uint32_t lkey() const noexcept { return mr_.lkey(); }
    [[nodiscard]] std::span<std::byte> slot(uint32_t index) const noexcept {
        return {static_cast<std::byte*>(memory_.at) + index * slot_bytes_, slot_bytes_};
    }

private:
    struct Memory {
        explicit Memory(uint64_t n) : bytes(n) {
            at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (at == MAP_FAILED)
                tcpqp::throw_errno("allocate buffers");
        }
        Memory(const Memory&) = delete;
        Memory& operator=(const Memory&) = delete;
        ~Memory() { ::munmap(at, bytes); }
        void* at = nullptr;
        uint64_t bytes;
    };
    uint64_t slot_bytes_;
    uint32_t slots_;
    Memory memory_;
    tcpqp::Mr mr_;
};

}  // namespace ncqp
