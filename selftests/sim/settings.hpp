// SPDX-License-Identifier: BSD-3-Clause
// What a schedule is made of.  Everything is drawn from the seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dice.hpp"

namespace sim {

enum class Engine : std::uint8_t { kOffloadV0, kOffloadV1, kSoftwareV1, kSoftwareV0 };

inline bool offloaded(Engine e) noexcept {
    return e == Engine::kOffloadV0 || e == Engine::kOffloadV1;
}

// One end of a connection.
struct EndSettings {
    std::uint32_t host = 0;
    Engine engine = Engine::kOffloadV0;
    std::uint32_t isn = 0;  // of the bytes it sends
    std::uint16_t first_msn = 0;
    std::uint32_t plain_bytes = 0;  // sent before its first message
    std::uint64_t attach_us = 0;
    std::uint64_t escape_us = 0;  // from the read of rcv_nxt to the context's birth
    std::uint32_t rq_entries = 8;
    std::uint32_t rq_index = 0;  // ring index at attach
    std::uint32_t window_bytes = 0;
    std::uint8_t wscale = 0;
    std::uint32_t sges_max = 1;
    bool completes = false;        // the switch may complete its receives
    bool quiet = false;            // .. and TCP hear of them later
    bool shared = false;           // .. and they are of an SRQ that others take from, too
    bool hostile = false;          // its application writes nonsense into its rings
    bool refuses_writes = false;   // its QP has no right of remote write
    std::uint32_t bad_access = 0;  // per mille of its one-sided requests: to where it has no right
    // per mille of the application's turns
    std::uint32_t lazy = 0;  // percent of turns in which no receive is posted
    std::uint32_t short_receive = 0, bad_key = 0, deregister = 0, recreate = 0;
};

struct ConnectionSettings {
    EndSettings end[2];
    int family = 4;
    bool timestamps = true;
    bool icrc = false;
    bool one_sided = false;  // WRITEs, READs and atomics among the SENDs
    bool trains = false;     // SENDs of one length one behind the other, some of them inline
    bool uneven = false;     // short WRITEs of different lengths, too
    std::uint32_t mss = 1000;
    std::uint32_t burst_max = 1;  // segments
    std::uint32_t message_max = 1000;
    std::uint32_t messages = 10;  // each way
};

struct FaultSettings {
    // per mille of segments
    std::uint32_t lose = 0, reorder = 0, duplicate = 0, late = 0, corrupt = 0, truncate = 0;
    std::uint32_t bleach = 0, replay = 0, mangle = 0, forge = 0, materialise = 0;
    std::uint32_t whole = 0;      // per mille of bursts: arrive in runs
    std::uint32_t link_down = 0;  // per mille of ticks
    // per mille of what arrives at a TCP end
    std::uint32_t refuse = 0, renege = 0, collapse = 0;
    std::uint32_t spurious = 0, overrun = 0;  // per mille of ticks
    std::uint64_t delay_us = 50, jitter_us = 0, reorder_us = 200, late_us = 20000;
    std::uint64_t until_us = 30000;
};

struct Settings {
    std::uint64_t seed = 0;
    std::uint32_t hosts = 2;
    std::vector<ConnectionSettings> connections;
    bool quiet = false;  // who completes receives may be quiet of it
    // No connection has WRITEs that share segments: there mixed trains of SENDs have schedules of
    // their own.
    bool mixed_trains() const noexcept {
        return std::ranges::none_of(
            connections, [](const ConnectionSettings& c) { return c.trains && c.one_sided; });
    }
    FaultSettings faults;

    static Settings draw(std::uint64_t seed, Dice& dice);
};

}  // namespace sim
