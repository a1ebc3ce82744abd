// SPDX-License-Identifier: BSD-3-Clause
#include <stdexcept>

#include "cgroup/cgroup.hpp"

namespace tcpqp::run {
namespace {

[[noreturn]] void refuse() { throw std::runtime_error("tcpqp-run was built without libbpf"); }

}  // namespace

void serve_cgroup(const std::string&) { refuse(); }
void leave_cgroup(const std::string&) { refuse(); }

}  // namespace tcpqp::run
