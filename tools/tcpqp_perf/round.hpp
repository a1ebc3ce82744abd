// SPDX-License-Identifier: BSD-3-Clause
// One measurement, and what either kind of transport can do.
#pragma once

#include <cstdint>
#include <vector>

#include "clock.hpp"
#include "tcpqp.h"

namespace perf {

enum class Test : uint32_t { kBandwidth = 0, kLatency = 1, kRate = 2 };

struct Round {
    Test test = Test::kBandwidth;
    uint32_t bytes = 65536;  // of a message
    uint64_t messages = 1000;
    uint32_t batch = 1;   // messages handed over by one call
    bool events = false;  // latency: sleep until the answer is there, on every engine
};

struct Sample {
    double seconds = 0;           // first send to the peer's word that it has all
    std::vector<float> trips_us;  // latency: each round trip
};

// Each of @trips timed by itself.
template <typename Trip>
Sample time_trips(uint64_t trips, Trip trip) {
    Sample s;
    s.trips_us.reserve(trips);
    const Stopwatch whole;
    for (uint64_t i = 0; i < trips; i++) {
        const Stopwatch one;
        trip();
        s.trips_us.push_back(static_cast<float>(one.seconds() * 1e6));
    }
    s.seconds = whole.seconds();
    return s;
}

constexpr uint32_t kAckBytes = 8;

// Client and server of a round; both throw when the connection ends.
class Transport {
public:
    virtual ~Transport() = default;
    virtual Sample ask(const Round& round) = 0;
    virtual void serve(const Round& round) = 0;
};

}  // namespace perf
