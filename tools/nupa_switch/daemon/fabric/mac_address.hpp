// SPDX-License-Identifier: BSD-3-Clause
// An Ethernet address as six bytes, as text and as a number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace nupa::daemon {

using MacAddress = std::array<uint8_t, 6>;

// "02:00:00:00:00:01"
std::optional<MacAddress> parse_mac(const std::string& text);
std::string format_mac(const uint8_t* mac);

// Bit 40 is the multicast bit.
inline uint64_t mac_key(const uint8_t* mac) noexcept {
    uint64_t key = 0;
    for (int i = 0; i < 6; i++)
        key = key << 8 | mac[i];
    return key;
}
inline constexpr uint64_t kBroadcastKey = 0xffffffffffff;
inline bool is_multicast(const uint8_t* mac) noexcept { return (mac[0] & 1) != 0; }

}  // namespace nupa::daemon
