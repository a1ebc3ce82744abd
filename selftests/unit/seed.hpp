// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace test {

// NUPA_SEED, or 1.
inline std::uint64_t first_seed() {
    const char* given = std::getenv("NUPA_SEED");
    return given ? std::strtoull(given, nullptr, 0) : 1;
}

// NUPA_SEED, or a new one.
inline std::uint32_t chosen_seed() {
    const char* given = std::getenv("NUPA_SEED");
    return given ? static_cast<std::uint32_t>(std::stoul(given)) : std::random_device()();
}

}  // namespace test
