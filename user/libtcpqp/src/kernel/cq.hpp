// SPDX-License-Identifier: BSD-3-Clause
// A verbs completion queue behind the provider interface.  It is waited for by its
// completion descriptor, which says by itself what there is to take, and that the
// device is gone.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "provider/provider.hpp"
#include "verbs/cq.hpp"

namespace tcpqp::module {

class Qp;

class Cq final : public tcpqp_cq {
public:
    // Throws std::system_error.
    Cq(tcpqp_context& context, tcpqp::Context& device, uint32_t entries);

    [[nodiscard]] int fd() noexcept override { return cq_.fd(); }
    int poll(std::span<tcpqp_completion> out) noexcept override;
    int wait(int timeout_ms) noexcept override;
    void wake() noexcept override;

    [[nodiscard]] CompletionQueue& verbs() noexcept { return cq_; }
    [[nodiscard]] tcpqp::Context& device() noexcept { return device_; }
    [[nodiscard]] std::mutex& lock() noexcept { return lock_; }
    void add(uint32_t qp_number, Qp& qp);
    // The lock is held by who posts.  Doorbell of @qp, 0 or a negative errno; or with the next
    // wait.
    int ring(const Qp& qp) noexcept;
    void ring_later(const Qp& qp) noexcept;
    // Its completions that wait are dropped: numbers are used again.
    void remove(uint32_t qp_number) noexcept;

private:
    size_t translate(std::span<const ibv_wc> from, tcpqp_completion* out) noexcept;
    int poll_device(std::span<tcpqp_completion> out) noexcept;
    size_t take_saved(std::span<tcpqp_completion> out) noexcept;
    // What an error of the descriptor's means for who polls: 0 or a negative errno.
    int remember(int error) noexcept;
    int ring_now(uint32_t qp_number) noexcept;  // 0 or an errno
    uint32_t take_unrung() noexcept;
    void put_unrung(uint32_t qp_number) noexcept;

    std::mutex lock_;
    tcpqp::Context& device_;
    CompletionQueue cq_;
    std::unordered_map<uint32_t, Qp*> qps_;
    uint32_t unrung_ = 0;  // the queue pair whose doorbell waits; 0: none
    std::deque<tcpqp_completion>
        saved_;                // of others, when a qp was removed; the descriptor is signalled
    bool was_empty_ = false;   // the last poll found nothing
    bool woken_ = false;       // the descriptor is signalled until a poll finds nothing
    std::atomic<int> end_{0};  // -ENODEV, -EIO: nothing comes any more
};

}  // namespace tcpqp::module
