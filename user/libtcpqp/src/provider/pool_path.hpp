// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tcpqp {

inline constexpr const char* kPoolPath =
    "/dev/nupa_pool0";  // of a host's window to the switch's pool

}  // namespace tcpqp
