// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/mac_table.hpp"

#include <new>

#include "event/clock.hpp"

namespace nupa::daemon {
namespace {

constexpr uint64_t kMulticastBit = 1ull << 40;

}  // namespace

void MacTable::reserve(const uint8_t* mac, uint16_t port) { own_.emplace(mac_key(mac), port); }

uint32_t MacTable::monotonic_s() noexcept {
    return static_cast<uint32_t>(read_clock_ns(CLOCK_MONOTONIC_COARSE) / kNsPerSecond);
}

// @port does not have @key yet, somebody else may.
bool MacTable::may_have(uint64_t key, uint16_t port, Kind kind) const noexcept {
    if (auto own = own_.find(key); own != own_.end())
        return own->second == port;
    return kind == Kind::kUplink || !entries_.contains(key);
}

// Who invents addresses has the table looked through once a second, and no more often.
bool MacTable::has_room(uint64_t key, uint16_t port, Kind kind) {
    const size_t most = kind == Kind::kUplink ? kMacsPerUplinkMax : kMacsPerGuestMax;
    Use& use = uses_[port];
    const auto room = [&] {
        return use.count < most && (entries_.size() < kMacsMax || entries_.contains(key));
    };
    if (!room())
        if (const uint32_t now_s = now_(); now_s != use.looked_s) {
            use.looked_s = now_s;
            forget_idle(port, now_s);
        }
    return room() || own_.contains(key);
}

void MacTable::forget_idle(uint16_t port, uint32_t now_s) noexcept {
    unsettle();
    uses_[port].count -= std::erase_if(entries_, [&](const auto& one) {
        const auto& [key, entry] = one;
        return entry.port == port && !entry.kept && !own_.contains(key) &&
               now_s - entry.used_s >= kMacIdleS;
    });
}

bool MacTable::learn(uint64_t key, uint16_t port, Kind kind) noexcept {
    const bool uplink = kind == Kind::kUplink;
    if (key & kMulticastBit || key == 0)
        return uplink;
    try {
        auto it = entries_.find(key);
        if (it == entries_.end() || it->second.port != port) {
            if (!may_have(key, port, kind))
                return false;
            if (!has_room(key, port, kind))
                return uplink;  // unknown addresses are flooded: an uplink's frames go on
            if (it != entries_.end())
                uses_[it->second.port].count--;
            unsettle();
            it = entries_.insert_or_assign(key, Entry{port}).first;
            uses_[port].count++;
        }
        touch_last();
        last_key_ = key, last_port_ = port, last_ = &it->second;
        return true;
    } catch (const std::bad_alloc&) {
        return uplink;
    }
}

bool MacTable::keep(const uint8_t* mac, uint16_t port, Kind kind) noexcept {
    if (!learn(mac, port, kind))
        return false;
    const auto it = entries_.find(mac_key(mac));
    if (it != entries_.end() && it->second.port == port)
        it->second.kept = true;
    return true;
}

int MacTable::find(uint64_t key) const noexcept {
    auto it = entries_.find(key);
    found_key_ = key;
    return found_port_ = it == entries_.end() ? kUnknown : it->second.port;
}

void MacTable::release(const uint8_t* mac, uint16_t port) noexcept {
    auto it = entries_.find(mac_key(mac));
    if (it == entries_.end() || it->second.port != port || !it->second.kept)
        return;
    unsettle();
    it->second.kept = false;
    it->second.used_s = now_();
}

void MacTable::forget(const uint8_t* mac, uint16_t port) noexcept {
    auto it = entries_.find(mac_key(mac));
    if (it == entries_.end() || it->second.port != port)
        return;
    unsettle();
    uses_[port].count--;
    entries_.erase(it);
}

void MacTable::forget_port(uint16_t port) noexcept {
    unsettle();
    std::erase_if(entries_, [port](const auto& one) { return one.second.port == port; });
    uses_.erase(port);
}

}  // namespace nupa::daemon
