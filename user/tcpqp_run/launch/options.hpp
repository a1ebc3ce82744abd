// SPDX-License-Identifier: BSD-3-Clause
// The command line of tcpqp-run.
#pragma once

#include <optional>
#include <string>

namespace tcpqp::run {

struct Options {
    bool stats = false;
    bool supervise = false;
    bool verbs = false;
    std::string cgroup;  // then there is no program
    bool off = false;
    char** program = nullptr;  // its name and its arguments, as in argv
};

// Empty when the program should exit with @exit_code (help, mistakes; already told).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace tcpqp::run
