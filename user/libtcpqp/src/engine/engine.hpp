// SPDX-License-Identifier: BSD-3-Clause
// The choice of an engine: what was asked, what the environment says, what there is.
#pragma once

#include "provider/provider.hpp"

namespace tcpqp {

Made<tcpqp_context> make_context(uint32_t engine, const char* ifname, int socket);
// -EINVAL: the environment names no engine.
int engine_from_environment(uint32_t& engine) noexcept;

}  // namespace tcpqp
