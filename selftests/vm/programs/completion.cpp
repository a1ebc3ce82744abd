// SPDX-License-Identifier: BSD-3-Clause
#include "completion.hpp"

#include <poll.h>

#include <chrono>
#include <stdexcept>

namespace nupa::programs {

bool await_completions(tcpqp::CompletionQueue& cq, int limit_ms) {
    pollfd fd{cq.fd(), POLLIN, 0};
    if (::poll(&fd, 1, limit_ms) <= 0)
        return false;
    cq.consume_events();
    return true;
}

ibv_wc next_completion(tcpqp::CompletionQueue& cq, int limit_ms) {
    ibv_wc wc{};
    for (;;) {
        if (!cq.arm())
            throw std::runtime_error("arm the completion queue");
        const int n = cq.poll({&wc, 1});
        if (n < 0)
            throw std::runtime_error("poll the completion queue");
        if (n > 0)
            return wc;
        pollfd fd{cq.fd(), POLLIN, 0};
        if (::poll(&fd, 1, limit_ms) == 0)
            throw std::runtime_error("no completion came");
        cq.consume_events();
    }
}

ibv_wc spun_completion(tcpqp::CompletionQueue& cq, int limit_ms) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    ibv_wc wc{};
    for (;;) {
        const int n = cq.poll({&wc, 1});
        if (n < 0)
            throw std::runtime_error("poll the completion queue");
        if (n > 0)
            return wc;
        if (std::chrono::steady_clock::now() > limit)
            throw std::runtime_error("no completion came");
    }
}

}  // namespace nupa::programs
