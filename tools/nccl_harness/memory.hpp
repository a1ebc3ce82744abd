// SPDX-License-Identifier: BSD-3-Clause
// Where payload lies and who computes with it: host memory and the CPU, or, in a GPU's place, an
// accelerator (tools/nupa_accel) with memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tcpqp::harness {

// A range of such memory, all zero at first, on pages of its own.
class Block {
public:
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    virtual ~Block() = default;

    // What networks are told.  Where dmabuf() is none, the CPU can read and write there; else these
    // addresses are reserved, and it would fault.
    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] float* floats() const noexcept { return reinterpret_cast<float*>(data_); }
    [[nodiscard]] size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] int dmabuf() const noexcept { return dmabuf_; }
    // From the beginning on, by the CPU.
    virtual void write(std::span<const std::byte> from) = 0;
    virtual void read(std::span<std::byte> to) const = 0;

protected:
    Block(std::byte* data, size_t bytes, int dmabuf) noexcept
        : data_(data), bytes_(bytes), dmabuf_(dmabuf) {}

private:
    std::byte* data_;
    size_t bytes_;
    int dmabuf_;
};

// to = from, or to = from + other.
struct Step {
    float* to;
    const float* from;
    const float* other;  // or NULL
    size_t count;
};

class Memory {
public:
    Memory() = default;
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    virtual ~Memory() = default;

    // Goes before the memory does.
    [[nodiscard]] virtual std::unique_ptr<Block> allocate(size_t bytes) = 0;
    // One after the other; all done when it returns.  Addresses lie in blocks of this memory.
    virtual void run(std::span<const Step> steps) = 0;
    // Bytes of the accelerator's memory that a CPU has touched so far.
    [[nodiscard]] virtual uint64_t touched() const = 0;
    [[nodiscard]] virtual bool is_host() const noexcept = 0;
};

Memory& host_memory();
// @accelerator: its device node; empty: host memory.  @mapped: its blocks have no dma-buf and are
// mapped, for networks that take host memory only.
std::unique_ptr<Memory> make_memory(const std::string& accelerator, bool mapped);

}  // namespace tcpqp::harness
