// SPDX-License-Identifier: BSD-3-Clause
// Where the application wants its payload: a run of the accelerator's memory, round and round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/accelerator.hpp"

namespace nupa::bench {

inline constexpr uint64_t kMessageBytes = 1 << 20;
inline constexpr uint64_t kSlots = 8;  // messages that are under way or not yet overwritten
inline constexpr uint64_t kPlaceBytes = kSlots * kMessageBytes;
inline constexpr uint32_t kPeriod = 251;  // of the pattern that each message is

class Place {
public:
    Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();

    [[nodiscard]] int dma_buf() const noexcept { return memory_.get(); }
    // For its addresses: whose bytes are touched is counted.
    [[nodiscard]] std::byte* mapped() const noexcept { return mapped_; }
    // How much of @bytes fits before the run begins again.
    [[nodiscard]] static uint64_t room(uint64_t at, uint64_t bytes) noexcept;
    // By the processor, through a mapping: the stream's bytes from @at on.
    void write(uint64_t at, std::span<const std::byte> bytes) noexcept;
    // By the accelerator, from another buffer; done with the next flush().
    void copy(uint64_t at, int from, uint64_t offset, uint64_t bytes);
    void flush();

    void clear();        // so that the pattern is not there from before
    void check() const;  // throws unless each slot has the pattern
    [[nodiscard]] uint64_t copied_bytes() const noexcept { return copied_bytes_; }
    [[nodiscard]] uint64_t submits() const noexcept { return submits_; }
    [[nodiscard]] nupa_accel_info info() const { return accelerator_.info(); }

private:
    tcpqp::Accelerator accelerator_;
    tcpqp::Fd memory_;
    std::byte* mapped_;
    nupa_accel_call calls_[NUPA_ACCEL_BATCH_MAX];
    uint32_t pending_ = 0;
    uint64_t copied_bytes_ = 0;
    uint64_t submits_ = 0;
};

}  // namespace nupa::bench
