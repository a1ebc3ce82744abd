// SPDX-License-Identifier: BSD-3-Clause
// A long stretch of memory, registered piece by piece as a transfer walks over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>

#include "verbs/context.hpp"
#include "verbs/mr.hpp"

namespace ncqp {

// Up to kRegisterWholeMaxBytes: one registration.  Above: windows of whole
// messages, the next one registered by another thread while this one is used,
// those behind revoked when retired.
class MrWindows {
public:
    MrWindows(const tcpqp::Context& context, std::byte* base, uint64_t bytes, uint64_t msg_bytes,
              int access) noexcept;

    // The key for the message at @offset (rising from call to call).
    // Returns 0, or the errno of the registration.
    int key_at(uint64_t offset, uint32_t& lkey) noexcept;
    // Nothing below @offset is in use any more.
    void retire_below(uint64_t offset) noexcept;

private:
    struct Registered {
        tcpqp::Mr mr;
        int error = 0;
    };
    [[nodiscard]] Registered make(uint64_t index) const noexcept;
    void prefetch(uint64_t index) noexcept;

    const tcpqp::Context& context_;
    std::byte* base_;
    uint64_t bytes_;
    uint64_t window_bytes_;
    int access_;
    uint64_t first_ = 0;  // index of live_.front()
    std::deque<tcpqp::Mr> live_;
    std::future<Registered> next_;
};

}  // namespace ncqp
