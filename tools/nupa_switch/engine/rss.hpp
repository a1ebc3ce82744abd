// SPDX-License-Identifier: BSD-3-Clause
// Receive side scaling: the Toeplitz hash as Linux drivers expect it.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <array>
#include <cstdint>
#include <span>

#include "flow.hpp"

namespace nupa {

class Rss {
public:
    // Microsoft's verification key, table all zero.
    static const Rss& standard() noexcept;
    void set_key(std::span<const std::uint8_t, NUPA_RSS_KEY_BYTES> key) noexcept;
    void set_table(std::span<const std::uint8_t, NUPA_RSS_TABLE_ENTRIES> table) noexcept;

    // Addresses and, when @ports, source and destination port.
    std::uint32_t hash(const FlowKey& flow, bool ports) const noexcept;
    std::uint8_t queue(std::uint32_t hash) const noexcept {
        return table_[hash % NUPA_RSS_TABLE_ENTRIES];
    }

private:
    Rss() = default;
    static Rss with_default_key() noexcept;

    static constexpr std::size_t kInputMaxBytes = 36;  // two IPv6 addresses and two ports
    std::array<std::array<std::uint32_t, 256>, kInputMaxBytes>
        by_byte_{};  // hash of a byte at a position
    std::array<std::uint8_t, NUPA_RSS_TABLE_ENTRIES> table_{};
};

}  // namespace nupa
