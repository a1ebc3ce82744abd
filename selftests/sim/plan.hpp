// SPDX-License-Identifier: BSD-3-Clause
// What one end's application will ask for, drawn before anything happens.
#pragma once

#include <cstdint>
#include <vector>

#include "settings.hpp"

namespace sim {

enum class Verb : std::uint8_t { kSend, kWrite, kWriteImm, kRead, kAtomic };

struct Planned {
    Verb verb;
    std::uint32_t length;  // bytes
    bool untagged() const noexcept { return verb == Verb::kSend || verb == Verb::kWriteImm; }
};

// A READ's source is a page.
inline constexpr std::uint32_t kReadMaxBytes = 2000;

// The messages of the connection, then those that must go well.
std::vector<Planned> draw_plan(const ConnectionSettings& connection, Dice& dice);

}  // namespace sim
