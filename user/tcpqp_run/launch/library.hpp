// SPDX-License-Identifier: BSD-3-Clause
// What belongs to tcpqp-run and lies beside it, or where it is installed.
#pragma once

#include <string>

namespace tcpqp::run {

inline constexpr const char* kSocketsLibrary = "libtcpqp-preload.so";
inline constexpr const char* kVerbsLibrary = "libtcpqp-posts.so";
inline constexpr const char* kCgroupProgram = "tcpqp-cgroup";  // there if it was built with libbpf

// Throws std::exception: there is none.
std::string find_beside(const char* name);
// A library that is to be preloaded, by a path that LD_PRELOAD can say.  Throws std::exception:
// there is none, or no such path.
std::string find_library(const char* name);

}  // namespace tcpqp::run
