// SPDX-License-Identifier: BSD-3-Clause
// Which port an Ethernet address is behind, and who may use it.
//
// The address of a virtual machine's port is its own, whether it is plugged in or not.  Any other
// one belongs to whoever used it first, as far as guests are concerned: none can take another's,
// nor more than a few at a time: what a port has not used for long makes room for another of its
// own.  An uplink speaks for many, and the operator trusts it: it may take what no port has as its
// own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "fabric/mac_address.hpp"

namespace nupa::daemon {

inline constexpr size_t kMacsMax = 16384;
inline constexpr size_t kMacsPerUplinkMax = 1024;  // one port can't crowd out the others
inline constexpr size_t kMacsPerGuestMax = 64;     // bridges, macvlan, containers
inline constexpr uint32_t kMacIdleS = 300;         // as long as an IEEE 802.1Q bridge remembers

class MacTable {
public:
    static constexpr int kUnknown = -1;
    enum class Kind : uint8_t { kGuest, kUplink };
    struct Entry {
        uint16_t port = 0;
        bool kept = false;    // until forget() or release()
        uint32_t used_s = 0;  // when it was used last; the last sender's is not set yet
    };
    using Seconds = uint32_t (*)() noexcept;  // that have passed since some moment

    explicit MacTable(Seconds now = monotonic_s) noexcept : now_(now) {}

    // Set-up only: @mac is @port's own.
    void reserve(const uint8_t* mac, uint16_t port);
    // A frame from @port has the source @mac.  False: it may not have it, and must be dropped.
    // Nothing is learnt past the bounds.
    bool learn(const uint8_t* mac, uint16_t port, Kind kind) noexcept {
        const uint64_t key = mac_key(mac);
        return (key == last_key_ && port == last_port_) || learn(key, port, kind);
    }
    [[nodiscard]] int find(const uint8_t* mac) const noexcept {
        const uint64_t key = mac_key(mac);
        return key == found_key_ ? found_port_ : find(key);
    }
    // The same, and it stays until forget() or release(), used or not.
    bool keep(const uint8_t* mac, uint16_t port, Kind kind) noexcept;
    // It need not stay, and is idle from now on: another address of @port may have its room.
    void release(const uint8_t* mac, uint16_t port) noexcept;
    // @port does not use @mac any more.
    void forget(const uint8_t* mac, uint16_t port) noexcept;
    void forget_port(uint16_t port) noexcept;
    [[nodiscard]] const std::unordered_map<uint64_t, Entry>& entries() const noexcept {
        return entries_;
    }

private:
    struct Use {
        size_t count = 0;
        uint32_t looked_s = 0;  // when its idle addresses were looked for
    };
    static uint32_t monotonic_s() noexcept;
    bool learn(uint64_t key, uint16_t port, Kind kind) noexcept;
    [[nodiscard]] bool has_room(uint64_t key, uint16_t port, Kind kind);
    void forget_idle(uint16_t port, uint32_t now_s) noexcept;
    [[nodiscard]] int find(uint64_t key) const noexcept;
    [[nodiscard]] bool may_have(uint64_t key, uint16_t port, Kind kind) const noexcept;
    void touch_last() noexcept {
        if (last_)
            last_->used_s = now_();
    }
    // What was found may change.
    void unsettle() noexcept {
        touch_last();
        last_ = nullptr;
        last_key_ = found_key_ = kNoKey;
    }

    static constexpr uint64_t kNoKey = ~0ull;
    std::unordered_map<uint64_t, uint16_t> own_;
    std::unordered_map<uint64_t, Entry> entries_;
    std::unordered_map<uint16_t, Use> uses_;
    Seconds now_;
    uint64_t last_key_ = kNoKey;  // of the last sender: bursts come from one
    uint16_t last_port_ = 0;
    Entry* last_ = nullptr;                // its entry
    mutable uint64_t found_key_ = kNoKey;  // of the last receiver: bursts go to one
    mutable int found_port_ = kUnknown;
};

}  // namespace nupa::daemon
