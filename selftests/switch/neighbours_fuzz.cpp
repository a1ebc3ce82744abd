// SPDX-License-Identifier: BSD-3-Clause
// Three guests, one of them hostile, for a while: the others' commands are answered in time, and
// what they send each other arrives.
//
//   switch_neighbours_fuzz [--seconds N] [--seed N]
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <thread>

#include "hostile_guest.hpp"

namespace {

using namespace nupa::testing;
using Clock = std::chrono::steady_clock;

// What a hostile guest sends arrives as well: it is passed over.
bool arrives(FakePort& from, FakePort& to, uint32_t seed) {
    const Bytes frame = build_ethernet(to.mac(), from.mac(), kTestType, pattern(300, seed));
    from.send(0, frame);
    for (const auto end = Clock::now() + std::chrono::seconds(5); Clock::now() < end;) {
        const auto got = to.try_receive(0);
        if (got && got->whole() == frame)
            return true;
        if (!got)
            std::this_thread::yield();
    }
    return false;
}

int play(unsigned long seconds, unsigned long seed) {
    DaemonProcess daemon(3);
    std::vector<std::unique_ptr<FakePort>> ports;
    for (unsigned i = 0; i < 3; i++) {
        ports.push_back(daemon.plug(i, i ? 64 << 20 : kHostileRamBytes));
        ports[i]->enable();
        if (!i)
            continue;
        ports[i]->create_queues(0);
        ports[i]->set_rx_mode(kModeAll, ports[i]->mac(), 9000);
    }
    std::atomic<bool> broken = false;
    unsigned long attacks = 0;
    std::jthread hostile([&](const std::stop_token& over) {
        try {
            HostileGuest guest(*ports[0], {ports[1]->mac(), ports[2]->mac()}, seed);
            for (; !over.stop_requested(); attacks++)
                guest.attack_any();
        } catch (const std::exception& e) {
            std::fprintf(stderr, "the hostile guest's port: %s\n", e.what());
            broken = true;
        }
    });
    Lateness lateness(daemon);
    unsigned long rounds = 0, lost = 0;
    uint64_t memory_at = 32 << 20;
    for (const auto end = Clock::now() + std::chrono::seconds(seconds);
         Clock::now() < end && !broken; rounds++) {
        for (unsigned i : {1u, 2u}) {
            ports[i]->set_alloc_at(memory_at);
            lateness.nop_ms(*ports[i]);
            // Buffers may be full of the flood: then it is the next one's turn.
            lost += !arrives(*ports[i], *ports[3 - i], static_cast<uint32_t>(rounds));
        }
    }
    hostile.request_stop();
    hostile.join();
    std::printf(
        "seed %lu: %lu attacks, %lu rounds, %lu frames lost, a command %.1f ms late (%.0f)\n", seed,
        attacks, rounds, lost, lateness.worst_ms(), late_max_ms());
    return broken || !rounds || lost > rounds / 2 || lateness.worst_ms() > late_max_ms();
}

}  // namespace

int main(int argc, char** argv) try {
    unsigned long seconds = 30, seed = static_cast<unsigned long>(std::time(nullptr));
    CLI::App app("a hostile guest beside two others");
    app.add_option("--seconds", seconds)->capture_default_str();
    app.add_option("--seed", seed);
    CLI11_PARSE(app, argc, argv);
    return play(seconds, seed);
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
