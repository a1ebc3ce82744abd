// SPDX-License-Identifier: BSD-3-Clause
// Arguments of callers, checked before a provider sees them.
#pragma once

#include <tcp_qp/tcp_qp.h>

#include "provider/provider.hpp"

namespace tcpqp {

// 0, -EBADF or -EINVAL.
int check_dmabuf(const DmabufRegion& region) noexcept;
// 0 or -EINVAL.
int check_qp_opts(const tcpqp_qp_opts* opts, int socket, QpRequest& request) noexcept;

}  // namespace tcpqp
