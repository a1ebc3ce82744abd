// SPDX-License-Identifier: BSD-3-Clause
// What each engine is held to, beside plain TCP in the same run.
#pragma once

#include <span>
#include <vector>

#include "options.hpp"
#include "report.hpp"

namespace perf {

// The measurements that have a bar.
struct BarTest {
    Test test;
    uint32_t bytes;
    uint64_t messages;
    uint32_t rounds;  // of a connection
};
// Whether TCP gives a connection a large window or a small one, and the scheduler two processes
// two cores or one, often stays for its life: a bar is the median of so many connections.
inline constexpr uint32_t kBarConnections = 9;
std::span<const BarTest> bar_tests() noexcept;
// @o with what @bar measures; -n and -N win.
Options options_of(const BarTest& bar, const Options& o);

void print_bar_header();
// Of one test, a result of each connection.  False: there is a bar for it, and it is missed.
bool print_bar(const std::vector<Result>& connections);

}  // namespace perf
