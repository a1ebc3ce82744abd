// SPDX-License-Identifier: BSD-3-Clause
// Arguments of callers, checked before a provider sees them.
#pragma once

#include "provider/provider.hpp"

namespace tcpqp {

// For callers that print it whatever is refused.
inline void write_no_reason(uint32_t* reason) noexcept {
    if (reason != nullptr)
        *reason = TCPQP_REASON_NONE;
}

// 0, -EBADF or -EINVAL.
int check_dmabuf(const DmabufRegion& region) noexcept;

}  // namespace tcpqp
