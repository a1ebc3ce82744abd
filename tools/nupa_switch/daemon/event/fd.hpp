// SPDX-License-Identifier: BSD-3-Clause
// File descriptors are libtcpqp's.
#pragma once

#include "base/fd.hpp"

namespace nupa::daemon {

using tcpqp::Fd;
using tcpqp::throw_errno;

}  // namespace nupa::daemon
