// SPDX-License-Identifier: BSD-3-Clause
// Equal buffers in one registered, page-aligned piece of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device_memory.hpp"
#include "options.hpp"
#include "verbs/context.hpp"
#include "verbs/mr.hpp"

namespace ncqp {

class BufferRing {
public:
    // At most @slots, fewer if they would exceed kRingMaxBytes, or kDeviceRingMaxBytes of memory of
    // a @device, which this program can map.  Throws std::system_error.
    BufferRing(const tcpqp::Context& context, uint64_t slot_bytes, uint32_t slots,
               DeviceKind device);

    [[nodiscard]] uint32_t slots() const noexcept { return slots_; }
    [[nodiscard]] uint32_t lkey() const noexcept { return device_ ? device_->lkey() : mr_.lkey(); }
    [[nodiscard]] std::span<std::byte> slot(uint32_t index) const noexcept {
        return {at_ + index * slot_bytes_, slot_bytes_};
    }
    [[nodiscard]] const char* name() const noexcept { return name_; }

private:
    struct Anonymous {
        explicit Anonymous(uint64_t n);
        Anonymous(const Anonymous&) = delete;
        Anonymous& operator=(const Anonymous&) = delete;
        ~Anonymous();
        std::byte* at = nullptr;
        uint64_t bytes;
    };
    uint64_t slot_bytes_;
    uint32_t slots_;
    std::unique_ptr<DeviceMemory> device_;
    std::unique_ptr<Anonymous> memory_;  // without a device
    tcpqp::Mr mr_;                       // of that
    std::byte* at_ = nullptr;
    const char* name_;
};

}  // namespace ncqp
