// SPDX-License-Identifier: BSD-3-Clause
// Memory that stands for a device's: a udmabuf, which this process can map and the port can reach.
#pragma once

#include <cstddef>
#include <span>

#include "base/fd.hpp"

namespace tcpqp::devmem {

class Memory {
public:
    // @bytes is a multiple of the page size.  Throws std::system_error.
    explicit Memory(size_t bytes);
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory();

    [[nodiscard]] int dma_buf() const noexcept { return dma_buf_.get(); }
    // What the device would see; a CPU reads it between begin_read() and end_read().
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {at_, bytes_}; }
    void begin_read() const;
    void end_read() const;

private:
    Fd dma_buf_;
    std::byte* at_;
    size_t bytes_;
};

}  // namespace tcpqp::devmem
