// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>

namespace sim {

// An invariant does not hold; the text says which one and where.
struct Violation : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace sim
