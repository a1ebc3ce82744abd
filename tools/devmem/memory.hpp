// SPDX-License-Identifier: BSD-3-Clause
// Where devmem TCP puts payload, or takes it from: an accelerator's memory, or a udmabuf that
// stands for a device's.
#pragma once

#include <cstddef>
#include <span>

#include "base/fd.hpp"

namespace tcpqp::devmem {

enum class MemoryKind { kUdmabuf, kHbm };

class Memory {
public:
    // @bytes is a multiple of the page size.  Throws std::system_error.
    Memory(MemoryKind kind, size_t bytes);
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory();

    [[nodiscard]] int dma_buf() const noexcept { return dma_buf_.get(); }
    // What the device sees; a CPU reads it between begin_read() and end_read().  Of an accelerator,
    // no page is in a processor's hands, or counted so, before it is touched.
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {at_, bytes_}; }
    void begin_read() const;
    void end_read() const;
    // The same for what a CPU writes and the device then reads.
    void begin_write() const;
    void end_write() const;

private:
    Fd dma_buf_;
    std::byte* at_;
    size_t bytes_;
};

}  // namespace tcpqp::devmem
