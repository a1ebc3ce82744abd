// SPDX-License-Identifier: BSD-3-Clause
#include "settings.hpp"

namespace sim {

namespace {

constexpr std::uint32_t kMaxDisorderMss = 72;
constexpr std::uint32_t kQuietTimes = 6;

// Often so that it wraps, or changes sign, in the middle of the traffic.
std::uint32_t draw_isn(Dice& dice) {
    switch (dice.below(4)) {
        case 0:
            return 0u - dice.below(20000);
        case 1:
            return 0x80000000u - dice.below(20000);
        default:
            return static_cast<std::uint32_t>(dice.bits());
    }
}

EndSettings draw_end(Dice& dice, bool strange) {
    EndSettings e;
    e.engine = static_cast<Engine>(dice.percent(60) ? 0 : dice.below(4));
    e.isn = draw_isn(dice);
    e.first_msn = static_cast<std::uint16_t>(dice.percent(60) ? 0 : 0u - dice.below(12));
    e.plain_bytes = dice.percent(50) ? 0 : dice.below(6000);
    e.attach_us = dice.below(3000);
    e.escape_us = dice.percent(50) ? 0 : dice.below(2000);
    e.rq_entries = 4u << dice.below(3);
    e.rq_index = dice.below(e.rq_entries);
    e.window_bytes = dice.range(3000, 40000);
    e.wscale = static_cast<std::uint8_t>(dice.below(8));
    e.sges_max = dice.percent(50) ? 1 : dice.range(2, 5);
    e.lazy = dice.percent(50) ? 0 : dice.below(95);
    if (!strange)
        return e;
    e.hostile = dice.percent(20);
    e.short_receive = dice.percent(25) ? 20 : 0;
    e.bad_key = dice.percent(25) ? 20 : 0;
    e.deregister = dice.percent(50) ? 20 : 0;
    e.recreate = dice.percent(30) ? 15 : 0;
    e.bad_access = dice.percent(70) ? 150 : 0;
    e.refuses_writes = dice.percent(10);
    return e;
}

ConnectionSettings draw_connection(Dice& dice, std::uint32_t hosts, bool disorder) {
    ConnectionSettings c;
    const bool strange = dice.percent(25);
    for (EndSettings& e : c.end)
        e = draw_end(dice, strange);
    c.end[0].host = dice.below(hosts);
    c.end[1].host = (c.end[0].host + dice.range(1, hosts - 1)) % hosts;
    c.family = dice.percent(30) ? 6 : 4;
    c.timestamps = dice.percent(80);
    c.icrc = dice.percent(20);
    c.one_sided = dice.percent(50);
    c.trains = dice.percent(40);
    if (c.one_sided)  // a context in mid-traffic cannot know which WRITEs the host has yet to copy
        for (EndSettings& e : c.end)
            e.recreate = 0;
    constexpr std::uint32_t kMessageMax[] = {60, 500, 2000, 5000};
    c.mss = disorder           ? dice.range(32, kMaxDisorderMss)
            : dice.percent(30) ? dice.range(64, 200)
                               : dice.range(200, 1440);
    c.burst_max = dice.percent(50) ? 1 : dice.range(2, 16);
    c.message_max = disorder ? kMessageMax[3] : kMessageMax[dice.below(4)];
    c.messages = dice.range(4, c.message_max <= 500 ? 40 : 16);
    if (disorder)
        for (EndSettings& e : c.end)
            e.window_bytes = 40000, e.rq_entries = 16;
    return c;
}

FaultSettings draw_faults(Dice& dice, bool disorder) {
    FaultSettings f;
    const auto some = [&](std::uint32_t chance, std::uint32_t most) {
        return dice.percent(chance) ? dice.below(most) : 0;
    };
    f.lose = some(60, disorder ? 300 : 200);
    f.reorder = disorder ? dice.range(300, 900) : some(60, 500);
    f.duplicate = some(50, 300);
    f.late = some(50, 100);
    f.corrupt = some(40, 50);
    f.truncate = some(30, 30);
    f.bleach = some(10, 10);
    f.replay = some(10, 20);
    f.mangle = some(8, 20);
    f.forge = some(20, 10);
    f.materialise = some(60, 1000);
    f.link_down = some(15, 5);
    f.refuse = some(40, 150);
    f.renege = some(30, 60);
    f.collapse = some(40, 100);
    f.spurious = some(50, 200);
    f.overrun = some(20, 100);
    f.delay_us = dice.range(1, 300);
    f.jitter_us = some(60, 300);
    f.reorder_us = dice.range(20, 3000);
    f.late_us = dice.range(1000, 40000);
    f.until_us = dice.range(5000, 80000);
    return f;
}

}  // namespace

Settings Settings::draw(std::uint64_t seed, Dice& dice) {
    Settings s;
    s.seed = seed;
    s.hosts = dice.percent(20) ? 3 : 2;
    const bool disorder = dice.percent(10);
    const std::uint32_t connections = disorder || dice.percent(60) ? 1 : dice.range(2, 3);
    for (std::uint32_t i = 0; i < connections; i++)
        s.connections.push_back(draw_connection(dice, s.hosts, disorder));
    s.faults = draw_faults(dice, disorder);
    // not drawn: the other seeds stay the schedules that they were before there were runs
    s.faults.whole = seed % 4 == 3 ? 100 + seed % 901 : 0;
    s.quiet = seed % 8 == 3 || seed % 8 == 5;
    for (ConnectionSettings& c : s.connections) {
        c.uneven = seed % 5 == 2;
        if (s.quiet)  // a new connection's messages are told at once
            c.messages *= kQuietTimes;
        for (std::uint32_t i = 0; i < 2; i++) {
            c.end[i].completes = offloaded(c.end[i].engine) && (seed + i) % 3 != 0;
            c.end[i].quiet = c.end[i].completes && s.quiet;
            c.end[i].shared = c.end[i].completes && (seed / 2 + i) % 5 == 0;
        }
    }
    return s;
}

}  // namespace sim
