// SPDX-License-Identifier: BSD-3-Clause
// A queue pair of the offload engine on a connected socket, and waiting for its completions.
#pragma once

#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/fd.hpp"
#include "verbs/attach.hpp"
#include "verbs/device.hpp"
#include "verbs/mr.hpp"

namespace nupa::bench {

class Queue {
public:
    static constexpr uint32_t kAttachLimitMs = 30000;
    static constexpr int kSilenceLimitMs = 20000;

    Queue(const std::string& interface, uint32_t depth)
        : context_(tcpqp::open_device(interface)),
          cq_(*context_, static_cast<int>(2 * depth), tcpqp::Waking::kDescriptor),
          qp_(*context_, cq_, {.sends = depth, .receives = depth}) {}

    [[nodiscard]] const tcpqp::Context& context() const noexcept { return *context_; }
    [[nodiscard]] tcpqp::QueuePair& qp() noexcept { return qp_; }
    void attach(tcpqp::Fd socket) {
        tcp_qp_attach_req request{};
        request.engine = TCP_QP_ENGINE_OFFLOAD;
        request.timeout_ms = kAttachLimitMs;
        const tcpqp::Attached done = tcpqp::attach(*context_, qp_, socket.get(), request);
        if (done.error)
            tcpqp::throw_errno(std::string("attach: ") + tcpqp::reason_name(done.response.reason),
                               done.error);
        if (done.response.engine != request.engine)
            throw std::runtime_error("attach: another engine");
        socket_ = std::move(socket);
    }
    // Sleeps until there are some; how many completed.
    uint32_t completions(bool ring) {
        ibv_wc done[16];
        for (;;) {
            const int n = cq_.poll(done);
            if (n < 0)
                throw std::runtime_error("the completion queue is broken");
            for (int i = 0; i < n; i++)
                if (done[i].status != IBV_WC_SUCCESS)
                    throw std::runtime_error(ibv_wc_status_str(done[i].status));
            if (n)
                return static_cast<uint32_t>(n);
            const auto& waking = cq_.descriptor();
            const int error = ring ? waking.ring_and_wait(qp_.get()->qp_num, kSilenceLimitMs)
                                   : waking.wait(kSilenceLimitMs);
            ring = false;
            if (error && error != EINTR)
                tcpqp::throw_errno("no completion came", error);
        }
    }
    [[nodiscard]] tcp_qp_info info() const {
        tcp_qp_info i{};
        if (const int error = tcpqp::query(*context_, qp_, i); error != 0)
            tcpqp::throw_errno("query the queue pair", error);
        return i;
    }

private:
    std::unique_ptr<tcpqp::Context> context_;
    tcpqp::CompletionQueue cq_;
    tcpqp::QueuePair qp_;
    tcpqp::Fd socket_;
};

}  // namespace nupa::bench
