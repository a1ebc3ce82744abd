// SPDX-License-Identifier: BSD-3-Clause
// What passes through the switch now: two looks at its counters, and what moved between them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "client.hpp"

namespace nupa::ctl {

// Replies to "ports", "stats" and "qps", and when they were asked for.
// Json's constructor of null is noexcept; the one that it calls throws for other types only.
// NOLINTNEXTLINE(bugprone-exception-escape)
struct Look {
    Json ports, stats, qps;
    double at_s = 0;  // of any clock that only goes on
};

// Columns that rows can be ordered by, the most first.
enum class TopOrder { kPlaced, kCopied, kSent, kDrops, kName };
inline constexpr const char* kTopOrders[] = {"placed", "copied", "sent", "drops", "name"};

// A line of text each, without ends.  @before without ports: totals since the switch began.
std::vector<std::string> render_top(const Look& before, const Look& now, TopOrder order);

struct TopOptions {
    std::string control;
    double interval_s = 1;
    bool once = false;
    TopOrder order = TopOrder::kPlaced;
};

// Until 'q' or SIGINT on a terminal; else one table each interval.  Once: rates of one interval.
// Throws RequestError when the switch is gone.
void run_top(const TopOptions& options);

}  // namespace nupa::ctl
