// SPDX-License-Identifier: BSD-3-Clause
// Registered memory of a device, filled and checked where it lies (-d).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "input.hpp"
#include "options.hpp"
#include "output.hpp"
#include "qp_sink.hpp"
#include "qp_source.hpp"
#include "verbs/context.hpp"
#include "verbs/mr.hpp"

namespace ncqp {

class DeviceMemory {
public:
    virtual ~DeviceMemory() = default;
    // Byte i becomes (start + i + 1) mod period; throws std::system_error.
    virtual void pattern(uint64_t at, uint64_t bytes, uint32_t period, uint64_t start) = 0;
    // Where this program has it; nullptr: no processor reaches it.
    [[nodiscard]] virtual std::byte* mapped() const noexcept { return nullptr; }

    [[nodiscard]] uint32_t lkey() const noexcept { return mr_.lkey(); }
    // What a work request says for the byte at @at.
    [[nodiscard]] void* address(uint64_t at) const noexcept {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs
        return reinterpret_cast<void*>(iova_ + at);
    }

protected:
    tcpqp::Fd dmabuf_;
    tcpqp::Mr mr_;
    uint64_t iova_ = 0;
};

// As --device-memory has it, and the report.
[[nodiscard]] const char* path_name(DeviceKind kind) noexcept;

// Throws std::system_error.
[[nodiscard]] std::unique_ptr<DeviceMemory> make_device_memory(const tcpqp::Context& context,
                                                               DeviceKind kind, uint64_t bytes);

// The pattern of @input, made by the device.
[[nodiscard]] std::unique_ptr<Source> make_device_source(const tcpqp::Context& context,
                                                         DeviceKind kind, const Input& input,
                                                         uint64_t msg_bytes);
// Messages stay in an accelerator's memory until the next ones take their place; it compares those
// of a pattern.
[[nodiscard]] std::unique_ptr<Sink> make_hbm_sink(const tcpqp::Context& context, uint32_t period,
                                                  uint64_t total, uint64_t msg_bytes,
                                                  uint32_t& depth);

}  // namespace ncqp
