// SPDX-License-Identifier: BSD-3-Clause
// The command line.
#pragma once

#include <string>
#include <vector>

#include "queue.hpp"
#include "round.hpp"

namespace perf {

struct Options {
    Test test = Test::kBandwidth;
    std::string host;  // empty: server
    uint16_t port = 18515;
    std::vector<uint32_t> sizes;  // at least one
    uint64_t messages = 0;        // 0: by size
    uint32_t rounds = 0;          // 0: 5, or a bar's
    uint32_t batch = 0;           // 0: by test
    Depth depth{128, 512};
    uint32_t engine = TCPQP_ENGINE_AUTO;
    bool events = false;
    bool pool = false;
    bool once = false;  // server: ends after one client
    bool json = false;
    bool bars = false;  // all that have one, instead of a test
};

// Prints a message and exits (64, or 0 for -h).
Options parse(int argc, char** argv);
const char* name(Test test) noexcept;
uint32_t default_batch(Test test) noexcept;

}  // namespace perf
