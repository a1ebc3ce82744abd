// SPDX-License-Identifier: BSD-3-Clause
// The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace nupa {

// Sums bytes of a scattered range; pieces may have odd lengths.
class ChecksumSum {
public:
    void add(std::span<const std::byte> bytes) noexcept;
    void add(const std::uint8_t* p, std::size_t n) noexcept {
        add({reinterpret_cast<const std::byte*>(p), n});
    }
    void add16(std::uint16_t host_order) noexcept;  // only at an even offset
    void add32(std::uint32_t host_order) noexcept;  // only at an even offset
    // Ones-complement sum folded to 16 bits, host order, not inverted.
    std::uint16_t folded() const noexcept;
    // What goes into a checksum field, host order.
    std::uint16_t checksum() const noexcept { return static_cast<std::uint16_t>(~folded()); }

private:
    std::uint64_t sum_ = 0;  // in network order as loaded
    bool odd_ = false;
};

// IPv4 header checksum as put in the header (the field itself is skipped), host order.
std::uint16_t ipv4_header_checksum(const std::uint8_t* ip, std::size_t header_bytes) noexcept;

// @check (host order) after a 16- or 32-bit word it covers changed, RFC 1624 eqn 3.
std::uint16_t checksum_update16(std::uint16_t check, std::uint16_t from, std::uint16_t to) noexcept;
std::uint16_t checksum_update32(std::uint16_t check, std::uint32_t from, std::uint32_t to) noexcept;

}  // namespace nupa
