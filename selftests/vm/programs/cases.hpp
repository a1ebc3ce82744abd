// SPDX-License-Identifier: BSD-3-Clause
// Programs that are a list of cases, each of which has the device for itself.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "verbs/device.hpp"

namespace nupa::programs {

using Cases = std::map<std::string, std::function<void(const tcpqp::Context&)>>;

// Those of @wanted, or all if that is empty, on @interface's device; prints {"cases": how many}.
// What a case throws begins with its name; std::out_of_range where there is none of a name.
void run_cases(const Cases& cases, const std::vector<std::string>& wanted,
               const std::string& interface);

}  // namespace nupa::programs
