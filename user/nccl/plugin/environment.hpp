// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tcpqp::nccl {

// What the environment variable @name says, from @least to @most; @usual, with a warning if that is
// no such number.
int number_from_environment(const char* name, int least, int most, int usual) noexcept;

}  // namespace tcpqp::nccl
