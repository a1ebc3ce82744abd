// SPDX-License-Identifier: BSD-3-Clause
// How many SEND_ZCs this process has submitted: what tx_zerocopy_bytes does not tell where the
// kernel copies all the same.
#pragma once

#include <cstdint>

namespace nupa::programs {

uint64_t zerocopy_asked() noexcept;

}  // namespace nupa::programs
