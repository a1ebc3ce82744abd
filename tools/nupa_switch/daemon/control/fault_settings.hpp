// SPDX-License-Identifier: BSD-3-Clause
// What impairs the way towards a port, as the control socket says it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/faults.hpp"
#include "fabric/link_model.hpp"

namespace nupa::daemon {

// Rates are probabilities from 0 to 1, to a millionth:
//   loss duplicate reorder corrupt truncate bleach mangle copy delay
// and numbers:
//   seed reorder_packets delay_min_us delay_max_us rate_mbps queue_bytes ecn_bytes
struct FaultSettings {
    FaultConfig faults;
    LinkConfig link;

    // Takes what @json names and leaves the rest; throws std::runtime_error for the client.
    void merge(const nlohmann::json& json);
    [[nodiscard]] nlohmann::json to_json() const;
};

}  // namespace nupa::daemon
