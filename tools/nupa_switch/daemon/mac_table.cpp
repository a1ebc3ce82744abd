// SPDX-License-Identifier: BSD-3-Clause
#include "mac_table.hpp"

#include <new>

namespace nupa::daemon {

void MacTable::learn(const uint8_t* mac, uint16_t port) noexcept {
    const uint64_t key = mac_key(mac);
    if (key == last_key_ && port == last_port_)
        return;
    if (is_multicast(mac) || key == 0)
        return;
    try {
        auto it = ports_.find(key);
        if (it != ports_.end() && it->second == port) {
            last_key_ = key, last_port_ = port;
            return;
        }
        if (counts_[port] >= kMacsPerPortMax || (it == ports_.end() && ports_.size() >= kMacsMax))
            return;
        if (it != ports_.end()) {
            counts_[it->second]--;
            it->second = port;
        } else {
            ports_.emplace(key, port);
        }
        counts_[port]++;
        last_key_ = key, last_port_ = port;
    } catch (const std::bad_alloc&) {
        // Unknown addresses are flooded, so forgetting one costs only bandwidth.
    }
}

int MacTable::find(const uint8_t* mac) const noexcept {
    auto it = ports_.find(mac_key(mac));
    return it == ports_.end() ? kUnknown : it->second;
}

void MacTable::forget_port(uint16_t port) noexcept {
    std::erase_if(ports_, [port](const auto& entry) { return entry.second == port; });
    counts_.erase(port);
    last_key_ = ~0ull;
}

}  // namespace nupa::daemon
