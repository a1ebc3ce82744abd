// SPDX-License-Identifier: BSD-3-Clause
// Memory to send from and receive into, for every transport alike: huge pages where there are any,
// as programs that care about throughput have it, or pages of 4 KiB that are scattered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory.hpp"

namespace nupa::bench {

class Buffer {
public:
    static constexpr uint8_t kFill = 0x5a;

    // Filled with kFill, so that no page is missing when it counts.  Throws.
    // @scattered: no page of 4 KiB has the next one's bytes behind it in memory.
    // @pool: a lease of the switch's pool instead.
    explicit Buffer(size_t bytes, bool scattered = false, bool pool = false);

    [[nodiscard]] std::span<uint8_t> bytes() const noexcept { return used_; }
    // As a region, named by its addresses; empty, and errno: it could not be.
    [[nodiscard]] tcpqp::Mr registered(const tcpqp::Context& context, int access) const;

private:
    void use(bool scattered, size_t bytes);

    programs::Pages pages_;
    std::span<uint8_t> used_;
};

}  // namespace nupa::bench
