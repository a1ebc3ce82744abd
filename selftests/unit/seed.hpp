// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdlib>

namespace test {

// NUPA_SEED, or 1.
inline std::uint64_t first_seed() {
    const char* given = std::getenv("NUPA_SEED");
    return given ? std::strtoull(given, nullptr, 0) : 1;
}

}  // namespace test
