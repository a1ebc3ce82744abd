// SPDX-License-Identifier: BSD-3-Clause
// Counters in Prometheus' text exposition format 0.0.4.
#pragma once

#include <string>

#include "client.hpp"

namespace nupa::ctl {

// Replies to "ports", "stats" and, or null, "qps".  A queue pair's series live as long as its
// context, so they are many: only with @qps.
std::string render_prometheus(const Json& ports, const Json& stats, const Json& qps);

}  // namespace nupa::ctl
