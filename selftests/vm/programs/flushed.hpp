// SPDX-License-Identifier: BSD-3-Clause
// A source of completions that needs no peer: a queue pair in error, which flushes every
// receive that is posted when its doorbell rings.
#pragma once

#include <tcp_qp/tcp_qp.h>

#include <string>

#include "verbs/context.hpp"
#include "verbs/cq.hpp"
#include "verbs/qp.hpp"

namespace nupa::programs {

class Flushed {
public:
    static constexpr uint32_t kReceivesMax = 32;

    // Throws std::system_error.
    Flushed(const tcpqp::Context& context, const tcpqp::CompletionQueue& cq);

    [[nodiscard]] uint32_t number() const noexcept { return qp_.get()->qp_num; }
    void post(uint32_t count);      // no doorbell: nothing completes
    void complete(uint32_t count);  // and the doorbell of verbs

private:
    tcpqp::QueuePair qp_;
};

// TCP_QP_IOCTL_CQ with nothing checked: 0 or an errno.
[[nodiscard]] int call_cq(int fd, uint32_t flags, uint32_t qp_number = 0, uint64_t timeout_ns = 0);
// poll(2)'s answer for @fd, 0 after @timeout_ms.
[[nodiscard]] short polled(int fd, int timeout_ms = 0);
// Throws with @what and both values if they differ.
void expect(const std::string& what, long found, long wanted);

}  // namespace nupa::programs
