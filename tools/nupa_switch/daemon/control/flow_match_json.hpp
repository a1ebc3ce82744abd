// SPDX-License-Identifier: BSD-3-Clause
// A FlowMatch as the control socket says it:
//   {"src": ADDRESS, "dst": ADDRESS, "sport": n, "dport": n}, each field optional
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/flow_match.hpp"

namespace nupa::daemon {

// Throws std::runtime_error for the client.
FlowMatch parse_flow_match(const nlohmann::json& json);
nlohmann::json flow_match_json(const FlowMatch& match);

}  // namespace nupa::daemon
