// SPDX-License-Identifier: BSD-3-Clause
// Replies of the switch as text.
#pragma once

#include <string>

#include "client.hpp"

namespace nupa::ctl {

// Rows of cells under a head, columns aligned.
std::string render_table(const std::vector<std::vector<std::string>>& rows);
std::string render_ports(const Json& reply);
std::string render_stats(const Json& reply, bool all);  // without @all: only counters that moved
std::string render_qps(const Json& reply);
std::string render_pool(const Json& reply);
std::string render_macs(const Json& reply);
std::string render_faults(const Json& reply);

}  // namespace nupa::ctl
