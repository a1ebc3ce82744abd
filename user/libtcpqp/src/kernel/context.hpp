// SPDX-License-Identifier: BSD-3-Clause
// The engines of the kernel module: offload and software.
#pragma once

#include "provider/provider.hpp"

namespace tcpqp {

Made<tcpqp_context> make_verbs(uint32_t engine, const char* ifname, int socket);

}  // namespace tcpqp
