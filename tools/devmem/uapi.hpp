// SPDX-License-Identifier: BSD-3-Clause
// Of Linux 6.12's <linux/socket.h> and <asm-generic/socket.h>; Debian 12's own are older.
#pragma once

#include <cstddef>

namespace tcpqp::devmem {

inline constexpr int kMsgSockDevmem = 0x2000000;
inline constexpr int kScmLinear = 78, kScmDmabuf = 79, kSoDontNeed = 80;
inline constexpr size_t kCallMaxBytes = 1 << 20;  // asked of one call; a choice

}  // namespace tcpqp::devmem
