// SPDX-License-Identifier: BSD-3-Clause
// A queue pair on the connection, its control messages, and its one wait.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "control.hpp"
#include "transfer.hpp"
#include "verbs/attach.hpp"
#include "verbs/context.hpp"
#include "verbs/cq.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"

namespace ncqp {

// Who a completion belongs to; data cookies are the source's or sink's own.
enum : uint64_t {
    kCookieControlReceive = 1ull << 63,
    kCookieControlSend = 1ull << 62,
    kCookieIndexMask = 0xff,
};

class QpSession {
public:
    // Opens the device of the connection's interface and makes the queue pair
    // with room for @depth messages each way and the control messages.
    // Throws std::system_error or tcpqp::DeviceMissing.
    QpSession(Job& job, uint32_t depth);

    // Give the socket to the queue pair.
    Status attach();

    [[nodiscard]] const tcpqp::Context& context() const noexcept { return *context_; }

    Status post_control_receives(size_t count) noexcept;
    Status send_control(const Control& control) noexcept;
    // The control message of a completed control receive.
    [[nodiscard]] std::optional<Control> control_of(const ibv_wc& wc) const noexcept;

    Status post_sends(std::span<const tcpqp::Work> works) noexcept;
    Status post_receives(std::span<const tcpqp::Work> works) noexcept;
    Status ring_doorbell() noexcept;

    // Completions that are there; none: wait() may be called.
    Status reap(std::span<const ibv_wc>& out) noexcept;
    // Until a completion, a device event, or @extra_fd is readable (-1: none).
    Status wait(int extra_fd, int timeout_ms, const char* what) noexcept;

    // No buffer is touched by the device any more when this returns.
    void close_queue_pair() noexcept { qp_.reset(); }

    // The sentence for a completion that failed.
    [[nodiscard]] Status failure_of(const ibv_wc& wc) noexcept;

    // Counters from here on belong to the data; account() puts them in the report.
    void mark_counters() noexcept;
    void account() noexcept;

private:
    Status find_interface(std::string& ifname);
    Status attach_failure(const tcpqp::Attached& attached) const;

    static constexpr size_t kControlSlots = 4;  // a peer sends at most three
    static constexpr size_t kReapMax = 32;

    Job& job_;
    std::unique_ptr<tcpqp::Context> context_;
    std::unique_ptr<tcpqp::CompletionQueue> cq_;
    std::vector<std::byte> control_memory_;  // receive slots, then send slots
    tcpqp::Mr control_mr_;
    std::unique_ptr<tcpqp::QueuePair> qp_;  // after what it points into
    std::array<ibv_wc, kReapMax> batch_{};
    std::string ifname_;
    size_t control_receives_ = 0;
    size_t control_sends_ = 0;
    bool armed_ = false;
    tcp_qp_info base_{};
};

}  // namespace ncqp
