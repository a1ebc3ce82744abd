// SPDX-License-Identifier: BSD-3-Clause
// Memory of one's own, of each kind that can be registered: nothing else of the process shares it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "verbs/context.hpp"
#include "verbs/mr.hpp"

namespace nupa::programs {

inline constexpr uint32_t kPageBytes = 4096;

enum class Memory {
    kPages,    // anonymous
    kHuge,     // anonymous, pages of 2 MiB
    kUdmabuf,  // a memfd as a dma-buf (/dev/udmabuf)
    kDmaHeap,  // a dma-buf of /dev/dma_heap/system
    kHbm,      // memory of the accelerator /dev/nupa_accel0
    kPool,     // a lease of the switch's pool, /dev/nupa_pool0
};

// Of "pages", "huge", "udmabuf", "dma-heap", "hbm" or "pool"; throws.
[[nodiscard]] Memory memory_of(const std::string& name);

class Pages {
public:
    // At least @bytes, mapped for the CPU.  Throws std::system_error.
    explicit Pages(size_t bytes, Memory kind = Memory::kPages);
    Pages(Pages&& other) noexcept;
    Pages& operator=(Pages&&) = delete;
    ~Pages();

    [[nodiscard]] std::span<uint8_t> bytes() const noexcept {
        return {static_cast<uint8_t*>(at_), bytes_};
    }
    // -1: none.
    [[nodiscard]] int dmabuf() const noexcept { return dmabuf_.get(); }
    // By address, or by its dma-buf if it is one; the region begins at bytes() either way.
    // Throws std::system_error.
    [[nodiscard]] tcpqp::Mr registered(const tcpqp::Context& context, int access) const;

private:
    void map(size_t whole, int flags, int fd);

    size_t bytes_;
    size_t mapped_ = 0;
    void* at_ = nullptr;
    tcpqp::Fd dmabuf_;
};

}  // namespace nupa::programs
