// SPDX-License-Identifier: BSD-3-Clause
// One measurement, as both ends go through it together.
#pragma once

#include <string>

#include "control.hpp"
#include "spec.hpp"

namespace nupa::bench {

// @connect: the other end's address, empty at the one that listens.  Returns a JSON object:
// at the connecting end, which sends, with the figures of both.  Throws what went wrong.
[[nodiscard]] std::string measure(const Spec& spec, Control& control, const std::string& connect,
                                  const std::string& interface);

}  // namespace nupa::bench
