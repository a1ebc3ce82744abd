// SPDX-License-Identifier: BSD-3-Clause
// Waits for one completion, asleep.
#pragma once

#include <infiniband/verbs.h>

#include "verbs/cq.hpp"

namespace nupa::programs {

constexpr int kCompletionLimitMs = 30000;

// Throws after @limit_ms without one, and if the queue is broken.
[[nodiscard]] ibv_wc next_completion(tcpqp::CompletionQueue& cq, int limit_ms = kCompletionLimitMs);

}  // namespace nupa::programs
