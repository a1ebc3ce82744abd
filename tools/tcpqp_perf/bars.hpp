// SPDX-License-Identifier: BSD-3-Clause
// What each engine is held to, beside plain TCP in the same run.
#pragma once

#include <span>

#include "options.hpp"
#include "report.hpp"

namespace perf {

// The measurements that have a bar.
struct BarTest {
    Test test;
    uint32_t bytes;
    uint64_t messages;
    uint32_t rounds;
};
std::span<const BarTest> bar_tests() noexcept;
// @o with what @bar measures; -n and -N win.
Options options_of(const BarTest& bar, const Options& o);

void print_bar_header();
// False: there is a bar for it, and it is missed.
bool print_bar(const Result& result);

}  // namespace perf
