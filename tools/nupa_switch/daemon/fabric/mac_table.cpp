// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/mac_table.hpp"

#include <new>

namespace nupa::daemon {
namespace {

constexpr uint64_t kMulticastBit = 1ull << 40;

}  // namespace

void MacTable::reserve(const uint8_t* mac, uint16_t port) { own_.emplace(mac_key(mac), port); }

// @port does not have @key yet, somebody else may.
bool MacTable::may_have(uint64_t key, uint16_t port, Kind kind) const noexcept {
    if (auto own = own_.find(key); own != own_.end())
        return own->second == port;
    return kind == Kind::kUplink || !ports_.contains(key);
}

bool MacTable::learn(uint64_t key, uint16_t port, Kind kind) noexcept {
    const bool uplink = kind == Kind::kUplink;
    if (key & kMulticastBit || key == 0)
        return uplink;
    try {
        auto it = ports_.find(key);
        const bool known = it != ports_.end();
        if (!known || it->second != port) {
            if (!may_have(key, port, kind))
                return false;
            // Unknown addresses are flooded: an uplink's frames go on.
            const bool full = counts_[port] >= (uplink ? kMacsPerUplinkMax : kMacsPerGuestMax) ||
                              (!known && ports_.size() >= kMacsMax);
            if (full && !own_.contains(key))
                return uplink;
            if (known)
                counts_[it->second]--;
            ports_[key] = port;
            counts_[port]++;
            changed();
        }
        last_key_ = key, last_port_ = port;
        return true;
    } catch (const std::bad_alloc&) {
        return uplink;
    }
}

int MacTable::find(uint64_t key) const noexcept {
    auto it = ports_.find(key);
    found_key_ = key;
    return found_port_ = it == ports_.end() ? kUnknown : it->second;
}

void MacTable::forget(const uint8_t* mac, uint16_t port) noexcept {
    auto it = ports_.find(mac_key(mac));
    if (it == ports_.end() || it->second != port)
        return;
    counts_[port]--;
    ports_.erase(it);
    changed();
}

void MacTable::forget_port(uint16_t port) noexcept {
    std::erase_if(ports_, [port](const auto& entry) { return entry.second == port; });
    counts_.erase(port);
    changed();
}

}  // namespace nupa::daemon
