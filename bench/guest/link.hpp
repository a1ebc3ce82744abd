// SPDX-License-Identifier: BSD-3-Clause
// Settings of the network interface that a measurement asks for.
#pragma once

#include <cstdint>
#include <string>

namespace nupa::bench {

// IPv4 bursts of up to so many bytes, for connections to come (BIG TCP above 64 KiB).
void set_burst_max(const std::string& interface, uint32_t bytes);
void set_mtu(const std::string& interface, uint32_t bytes);

}  // namespace nupa::bench
