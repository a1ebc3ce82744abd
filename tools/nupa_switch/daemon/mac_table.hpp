// SPDX-License-Identifier: BSD-3-Clause
// Which port an Ethernet address was last seen behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace nupa::daemon {

inline constexpr size_t kMacsMax = 16384;
inline constexpr size_t kMacsPerPortMax = 1024;  // one port can't crowd out the others

// An address as a number; bit 40 is the multicast bit.
inline uint64_t mac_key(const uint8_t* mac) noexcept {
    uint64_t key = 0;
    for (int i = 0; i < 6; i++)
        key = key << 8 | mac[i];
    return key;
}
inline constexpr uint64_t kBroadcastKey = 0xffffffffffff;
inline bool is_multicast(const uint8_t* mac) noexcept { return (mac[0] & 1) != 0; }

class MacTable {
public:
    static constexpr int kUnknown = -1;

    // Nothing is learnt for multicast addresses, or past the bounds.
    void learn(const uint8_t* mac, uint16_t port) noexcept;
    [[nodiscard]] int find(const uint8_t* mac) const noexcept;
    void forget_port(uint16_t port) noexcept;
    [[nodiscard]] const std::unordered_map<uint64_t, uint16_t>& entries() const noexcept {
        return ports_;
    }

private:
    std::unordered_map<uint64_t, uint16_t> ports_;
    std::unordered_map<uint16_t, size_t> counts_;
    uint64_t last_key_ = ~0ull;  // bursts come from one sender
    uint16_t last_port_ = 0;
};

}  // namespace nupa::daemon
