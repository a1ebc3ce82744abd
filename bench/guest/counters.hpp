// SPDX-License-Identifier: BSD-3-Clause
// What this guest has done so far, and what lies between two moments.
//
// Under QEMU's -icount shift=0 a nanosecond of guest time is one instruction, so
// busy_ns counts the instructions that were not the idle loop's.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.hpp"

namespace nupa::bench {

struct Counters {
    uint64_t wall_ns = 0;
    uint64_t idle_ns = 0;  // of all processors
    uint64_t device_interrupts = 0;
    uint64_t doorbells = 0;       // of the transmit rings
    uint64_t rx_completions = 0;  // what the driver took from its receive rings
    uint64_t system_calls = 0;    // of this process, if counted
    uint64_t context_switches = 0;
    uint64_t tcp_segments = 0;        // sent by TCP in this network namespace, not those sent again
    uint64_t tcp_segments_again = 0;  // retransmitted

    // wall - idle
    [[nodiscard]] static uint64_t busy_between(const Counters& before, const Counters& after);
    // One JSON object.  @reading_ns: what reading them takes, which is no part of busy.
    [[nodiscard]] static std::string between(const Counters& before, const Counters& after,
                                             uint64_t reading_ns);
};

// Where a host has not the files (no nupa0, no permission) its counts stay zero.
class CounterReader {
public:
    // @calls: count system calls, by a tracepoint.  Throws if that was asked for and can't be.
    CounterReader(const std::string& interface, bool calls);
    [[nodiscard]] Counters read();

private:
    void read_device(Counters& c) const;

    std::string interface_;
    tcpqp::Fd ethtool_;
    tcpqp::Fd calls_;
};

// KiB that the kernel keeps for itself and cannot give back: neither free, nor a program's,
// nor a cache of files, nor slab that it would shrink.
[[nodiscard]] int64_t unswappable_kib();

}  // namespace nupa::bench
