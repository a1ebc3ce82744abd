// SPDX-License-Identifier: BSD-3-Clause
// The file that an accelerator's BAR2 is.
#pragma once

#include <cstdint>
#include <string>

#include "event/fd.hpp"

namespace nupa::accel {

// A new file @path of @bytes, all zero; throws std::system_error.
tcpqp::Fd make_memory_file(const std::string& path, uint64_t bytes);

}  // namespace nupa::accel
