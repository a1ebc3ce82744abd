// SPDX-License-Identifier: BSD-3-Clause
// Why connections are left to TCP, in words.
#pragma once

#include "protocol/protocol.hpp"

namespace tcpqp::run {

// "NO_MODULE"; of what is no such reason, "UNKNOWN".
const char* plain_name(Plain why) noexcept;

}  // namespace tcpqp::run
