// SPDX-License-Identifier: BSD-3-Clause
// What the command line asks for, checked.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ports/port_type.hpp"

namespace nupa::daemon {

inline constexpr unsigned kNameMaxBytes = 32;

struct Options {
    std::string control;
    std::vector<std::unique_ptr<PortPlan>> ports;
    int ready_fd = -1;
};

// Empty when the program should exit with @exit_code (help, version, mistakes; already told).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace nupa::daemon
