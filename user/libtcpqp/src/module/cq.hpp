// SPDX-License-Identifier: BSD-3-Clause
// A verbs completion queue behind the provider interface.  Its descriptor is an
// epoll of the completion channel, the device's events and our own nudge.
#pragma once

#include <deque>
#include <mutex>
#include <unordered_map>

#include "provider.hpp"
#include "verbs/cq.hpp"
#include "verbs/fd.hpp"

namespace tcpqp::module {

class Qp;

class Cq final : public tcpqp_cq {
public:
    // Throws std::system_error.
    Cq(tcpqp_context& context, tcpqp::Context& device, uint32_t entries);

    [[nodiscard]] int fd() noexcept override { return epoll_.get(); }
    int poll(std::span<tcpqp_completion> out) noexcept override;
    int wait(int timeout_ms) noexcept override;

    [[nodiscard]] CompletionQueue& verbs() noexcept { return cq_; }
    [[nodiscard]] tcpqp::Context& device() noexcept { return device_; }
    [[nodiscard]] std::mutex& lock() noexcept { return lock_; }
    void add(uint32_t qp_number, Qp& qp);
    // Its completions that wait are dropped: numbers are used again.
    void remove(uint32_t qp_number) noexcept;

private:
    void watch(int fd);
    size_t translate(std::span<const ibv_wc> from, tcpqp_completion* out) noexcept;
    int poll_device(std::span<tcpqp_completion> out) noexcept;
    bool device_is_gone() noexcept;

    std::mutex lock_;
    tcpqp::Context& device_;
    CompletionQueue cq_;
    Fd nudge_;
    Fd epoll_;
    std::unordered_map<uint32_t, Qp*> qps_;
    std::deque<tcpqp_completion> saved_;  // of others, when a qp was removed
    bool gone_ = false;
};

}  // namespace tcpqp::module
