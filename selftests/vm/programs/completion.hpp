// SPDX-License-Identifier: BSD-3-Clause
// Waits for completions: asleep, but for spun_completion().
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>

#include "verbs/cq.hpp"

namespace nupa::programs {

constexpr int kCompletionLimitMs = 30000;

// Throws after @limit_ms without one, and if the queue is broken.
[[nodiscard]] ibv_wc next_completion(tcpqp::CompletionQueue& cq, int limit_ms = kCompletionLimitMs);

[[nodiscard]] ibv_wc spun_completion(tcpqp::CompletionQueue& cq, int limit_ms);

// False: none comes within @limit_ms.  Throws if the queue is broken.
[[nodiscard]] bool await_completions(tcpqp::CompletionQueue& cq, int limit_ms);

// @visit(wc) of each that is there; were there any?  Throws if the queue is broken.
template <class Visit>
bool drain(tcpqp::CompletionQueue& cq, Visit visit) {
    std::array<ibv_wc, 64> wcs;
    bool any = false;
    while (const int n = cq.poll(wcs)) {
        if (n < 0)
            throw std::runtime_error("poll the completion queue");
        any = true;
        for (const ibv_wc& wc : std::span(wcs).first(static_cast<size_t>(n)))
            visit(wc);
    }
    return any;
}

// The same, of what is there or comes first.  False: nothing in @limit_ms.
template <class Visit>
bool drain_next(tcpqp::CompletionQueue& cq, int limit_ms, Visit visit) {
    if (!cq.arm())
        throw std::runtime_error("arm the completion queue");
    if (drain(cq, visit))
        return true;
    if (!await_completions(cq, limit_ms))
        return false;
    drain(cq, visit);
    return true;
}

}  // namespace nupa::programs
