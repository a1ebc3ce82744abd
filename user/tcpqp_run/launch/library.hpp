// SPDX-License-Identifier: BSD-3-Clause
// The preload library, by a path that LD_PRELOAD can say.
#pragma once

#include <string>

namespace tcpqp::run {

// Throws std::exception: there is none, or no such path.
std::string find_library();

}  // namespace tcpqp::run
