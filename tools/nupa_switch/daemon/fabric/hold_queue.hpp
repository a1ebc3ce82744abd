// SPDX-License-Identifier: BSD-3-Clause
// Segments that must wait: for their departure time, or until later ones have overtaken them.
// They own their bytes.  The timer is armed only while something waits, or a moment longer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/packet.hpp"
#include "event/fd.hpp"

namespace nupa::daemon {

inline constexpr size_t kHeldMaxBytes = 256 << 20;      // of all ports together
inline constexpr size_t kOvertakenMax = 64;             // of one port, waiting to be overtaken
inline constexpr uint64_t kOvertakeMaxNs = 10'000'000;  // nobody waits longer to be overtaken

class HoldQueue {
public:
    HoldQueue();

    struct Held {
        uint16_t port;
        Packet segment;
    };

    [[nodiscard]] int timer_fd() const noexcept { return timer_.get(); }
    [[nodiscard]] bool empty() const noexcept { return held_.empty(); }
    [[nodiscard]] size_t bytes() const noexcept { return bytes_; }

    // Both take @segment, which must own its bytes.  False: the queue is full.
    bool hold_until(uint64_t due_ns, uint16_t port, Packet&& segment) noexcept;
    bool hold_behind(uint32_t packets, uint64_t now_ns, uint16_t port, Packet&& segment) noexcept;
    // A segment passed towards @port: returns one that was overtaken often enough, if any is.
    void passed(uint16_t port) noexcept;
    std::optional<Held> take_overtaken() noexcept;
    std::optional<Held> take_due(uint64_t now_ns) noexcept;
    void drop_port(uint16_t port) noexcept;
    // Makes the timer fire at the earliest due time, of what is held or @other_ns (UINT64_MAX:
    // never), or before: it costs no system call unless something falls due earlier than it did.
    void arm(uint64_t other_ns) noexcept;
    void fired() noexcept { fired_ = true; }

private:
    using Map = std::multimap<uint64_t, Held>;
    struct Overtaken {
        Map::iterator at;
        uint32_t left;
    };

    Map::iterator insert(uint64_t due_ns, uint16_t port, Packet&& segment);
    Held extract(Map::iterator at) noexcept;
    bool fits(const Packet& segment) const noexcept;

    Fd timer_;
    Map held_;
    std::vector<Overtaken> overtaken_;
    size_t bytes_ = 0;
    uint64_t armed_ns_ = UINT64_MAX;  // off
    bool fired_ = false;              // since it was armed
};

}  // namespace nupa::daemon
