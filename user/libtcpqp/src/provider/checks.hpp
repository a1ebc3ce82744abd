// SPDX-License-Identifier: BSD-3-Clause
// Arguments of callers, checked before a provider sees them.
#pragma once

#include "provider/provider.hpp"

namespace tcpqp {

// 0, -EBADF or -EINVAL.
int check_dmabuf(const DmabufRegion& region) noexcept;

}  // namespace tcpqp
