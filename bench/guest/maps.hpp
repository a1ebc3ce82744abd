// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace nupa::bench {

// KiB of verbs rings that are mapped into this process.
[[nodiscard]] uint64_t mapped_ring_kib();

}  // namespace nupa::bench
