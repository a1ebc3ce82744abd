// SPDX-License-Identifier: BSD-3-Clause
// All programs of a cgroup, static and Go ones among them: a BPF program of three instructions has
// the kernel give the ULP to each TCP socket that they make.
#pragma once

#include <string>

namespace tcpqp::run {

// Until leave_cgroup(), or until the cgroup is removed; more than once is as once.  Both throw
// std::exception: nothing was changed.
void serve_cgroup(const std::string& path);
void leave_cgroup(const std::string& path);

}  // namespace tcpqp::run
