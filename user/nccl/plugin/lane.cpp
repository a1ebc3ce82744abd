// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/lane.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

namespace tcpqp::nccl {
namespace {

// In a work's id: it is long.  Callers' ids end far below.
constexpr uint64_t kLongId = uint64_t{1} << 63;

}  // namespace

Lane::Lane(Rail& rail, std::shared_ptr<Workers> workers)
    : rail_(rail), workers_(std::move(workers)) {
    for (auto* queue : {&left_, &posting_})
        queue->reserve(kLaneWorksMax);
    done_.reserve(kLaneWorksMax);
    worker_ = workers_->add(*this);  // which looks at it from now on
}

Lane::~Lane() {
    stop();
    workers_->remove(*worker_, *this);
}

int Lane::post_now(std::span<const tcpqp_work> works, bool sends) const noexcept {
    return sends ? tcpqp_post_send(rail_.qp(), works.data(), works.size())
                 : tcpqp_post_recv(rail_.qp(), works.data(), works.size());
}

int Lane::post(std::span<const tcpqp_work> works, bool sends) {
    const bool handed = handed_.load(std::memory_order_relaxed);
    const auto is_long_one = [&](const tcpqp_work& work) { return is_long(work, sends); };
    if (!handed && std::none_of(works.begin(), works.end(), is_long_one))
        return post_now(works, sends);
    leave(works, sends);
    handed_.store(true, std::memory_order_seq_cst);
    worker_->wake();
    return static_cast<int>(works.size());
}

void Lane::leave(std::span<const tcpqp_work> works, bool sends) {
    const std::lock_guard guard(lock_);
    for (const tcpqp_work& work : works) {
        left_.push_back({work, sends});
        if (is_long(work, sends)) {
            left_.back().work.id |= kLongId;
            long_ones_++;
        }
    }
    has_left_.store(true, std::memory_order_release);
}

int Lane::take(std::span<tcpqp_completion> out) noexcept {
    if (!has_done_.load(std::memory_order_acquire))
        return 0;
    const std::lock_guard guard(lock_);
    const size_t n = std::min(out.size(), done_.size());
    std::copy_n(done_.begin(), n, out.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<ptrdiff_t>(n));
    has_done_.store(!done_.empty(), std::memory_order_release);
    for (tcpqp_completion& c : out.first(n)) {
        long_ones_ -= (c.id & kLongId) != 0 ? 1 : 0;
        c.id &= ~kLongId;
    }
    return static_cast<int>(n);
}

int Lane::poll(std::span<tcpqp_completion> out) noexcept {
    int n = take(out);
    if (handed_.load(std::memory_order_relaxed)) {
        if (long_ones_ != 0 && n == 0)
            return 0;
        if (long_ones_ == 0)  // now: nobody may ask again for long
            take_back();
    }
    if (n == 0 && (n = take(out)) == 0)
        n = rail_.poll(out);
    for (int i = 0; i < n; i++)
        if (out[static_cast<size_t>(i)].opcode == TCPQP_OP_RECV)
            receives_long_ = out[static_cast<size_t>(i)].length >= kLongBytes;
    return n;
}

// The worker leaves it alone first: else it would have the lock again before we get it.
void Lane::take_back() noexcept {
    handed_.store(false, std::memory_order_release);
    const std::lock_guard guard(drive_);
    post_left();
    refused_.store(refusal_, std::memory_order_release);
}

void Lane::stop() noexcept {
    handed_.store(false, std::memory_order_release);
    const std::lock_guard driving(drive_);
    const std::lock_guard guard(lock_);
    left_.clear();
    has_left_.store(false, std::memory_order_release);
}

// Sends and receives as they were left, as many of a kind as stand together at once.
bool Lane::post_left() noexcept {
    if (!has_left_.load(std::memory_order_acquire))
        return false;
    {
        const std::lock_guard guard(lock_);
        posting_.swap(left_);
        has_left_.store(false, std::memory_order_release);
    }
    std::array<tcpqp_work, kPollBatch> batch;
    for (size_t i = 0; i < posting_.size();) {
        const bool sends = posting_[i].sends;
        size_t n = 0;
        for (; n < batch.size() && i < posting_.size() && posting_[i].sends == sends; i++)
            batch[n++] = posting_[i].work;
        if (refusal_ != 0)
            continue;
        const int posted = post_now(std::span(batch).first(n), sends);
        if (posted != static_cast<int>(n))
            refusal_ = posted < 0 ? posted : -ENOSPC;
    }
    posting_.clear();
    return true;
}

bool Lane::step() noexcept {
    const std::lock_guard driving(drive_);
    if (!handed_.load(std::memory_order_relaxed))
        return false;
    const bool posted = post_left();
    std::array<tcpqp_completion, kPollBatch> batch;
    const int n = rail_.poll(batch);
    if (n <= 0) {
        refused_.store(n < 0 ? n : refusal_, std::memory_order_release);
        return posted;
    }
    const std::lock_guard guard(lock_);
    done_.insert(done_.end(), batch.begin(), batch.begin() + n);
    has_done_.store(true, std::memory_order_release);
    return true;
}

}  // namespace tcpqp::nccl
