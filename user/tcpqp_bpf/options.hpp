// SPDX-License-Identifier: BSD-3-Clause
// The command line of tcpqp-bpf.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "base/bpf_abi.h"

namespace tcpqp::bpf {

struct Options {
    std::string cgroup = "/sys/fs/cgroup";
    std::string socket = TCPQP_BPF_SOCKET_PATH;
    bool socket_named = false;  // the path or the mode was given
    std::string user;           // empty: who we are
    mode_t mode = 0660;
    bool verbose = false;
};

// Empty when the program should exit with @exit_code (help, mistakes; already told).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace tcpqp::bpf
