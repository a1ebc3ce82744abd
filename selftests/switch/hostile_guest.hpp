// SPDX-License-Identifier: BSD-3-Clause
// A guest that keeps its port of the switch as busy as the ABI lets it, and how late its
// neighbours' commands are for it.
#pragma once

#include <ctime>
#include <random>

#include "two_ports.hpp"

namespace nupa::testing {

inline constexpr uint64_t kHostileRamBytes = 256 << 20;
inline constexpr int kLateMaxMs = 100;  // a neighbour's command may be; NUPA_SLOWNESS multiplies it

class HostileGuest {
public:
    // @port is plugged in and has kHostileRamBytes of memory.
    HostileGuest(FakePort& port, std::vector<Mac> others, uint64_t seed);

    enum Attack : unsigned {
        kLongRegistrations,
        kShortRegistrations,
        kNops,
        kQueuePairs,
        kQueueCommands,
        kSteering,
        kModes,
        kResets,
        kBursts,
        kFloods,
        kDoorbells,
        kScribbles,
        kAttacks,
    };
    // Throws std::runtime_error only if the switch is at fault.
    void attack(Attack attack);
    void attack_any() { attack(static_cast<Attack>(below(kAttacks))); }

private:
    void start();
    // Every free place of the admin ring, by @make(command), and nobody waits for it.
    template <class Make>
    void submit(unsigned count, Make&& make);
    void register_memory(bool much);
    void create_queue_pairs();
    void create_and_destroy_queues();
    void add_steering_rules();
    void change_modes();
    void scribble_on_registers();
    void ring_doorbells(unsigned times);
    void send(bool flood);
    uint32_t any() { return static_cast<uint32_t>(dice_()); }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(dice_() % n); }

    FakePort& port_;
    std::vector<Mac> others_;
    std::mt19937_64 dice_;
    uint64_t free_ = 0;  // memory behind what start() has taken
    bool queues_ = false;
};

// How late the answer to one NOP was, as far as the switch had other work: the processor time
// that it has spent meanwhile, or the time that passed if that is less.  So neither a busy machine
// nor one that stops now and then counts.
class Lateness {
public:
    explicit Lateness(const DaemonProcess& daemon);
    double nop_ms(FakePort& port);
    [[nodiscard]] double worst_ms() const { return worst_ms_; }

private:
    clockid_t clock_;
    double worst_ms_ = 0;
};

double late_max_ms();

}  // namespace nupa::testing
