// SPDX-License-Identifier: BSD-3-Clause
// Root's tcpqp-bpf gives up being root, and keeps the three capabilities that it needs.
#pragma once

#include <string>

namespace tcpqp::bpf {

// Throws: no such user, or no right to become it.
void become(const std::string& user);

}  // namespace tcpqp::bpf
