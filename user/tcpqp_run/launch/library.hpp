// SPDX-License-Identifier: BSD-3-Clause
// A library that is preloaded, by a path that LD_PRELOAD can say.
#pragma once

#include <string>

namespace tcpqp::run {

inline constexpr const char* kSocketsLibrary = "libtcpqp-preload.so";
inline constexpr const char* kVerbsLibrary = "libtcpqp-posts.so";

// Throws std::exception: there is none, or no such path.
std::string find_library(const char* name);

}  // namespace tcpqp::run
