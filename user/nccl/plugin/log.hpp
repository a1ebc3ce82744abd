// SPDX-License-Identifier: BSD-3-Clause
// What the plugin says goes through the function that NCCL gave it: NCCL_DEBUG=WARN or INFO.
#pragma once

#include "nccl/contract/net.hpp"

namespace tcpqp::nccl {

void set_log(LogFunction log) noexcept;
[[gnu::format(printf, 1, 2)]] void warn(const char* format, ...) noexcept;
[[gnu::format(printf, 1, 2)]] void info(const char* format, ...) noexcept;

}  // namespace tcpqp::nccl
