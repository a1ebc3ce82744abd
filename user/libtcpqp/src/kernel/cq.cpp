// SPDX-License-Identifier: BSD-3-Clause
#include "kernel/cq.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernel/qp.hpp"

namespace tcpqp::module {
namespace {

constexpr size_t kPollBatch = 64;

int status_of(ibv_wc_status status) noexcept {
    switch (status) {
        case IBV_WC_SUCCESS:
            return 0;
        case IBV_WC_WR_FLUSH_ERR:
            return -ECANCELED;
        case IBV_WC_LOC_LEN_ERR:
            return -EMSGSIZE;
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_ACCESS_ERR:
            return -EFAULT;
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_OP_ERR:
            return -EREMOTEIO;
        default:
            return -EIO;
    }
}

}  // namespace

Cq::Cq(tcpqp_context& owner, tcpqp::Context& device, uint32_t entries)
    : tcpqp_cq(owner),
      device_(device),
      cq_(device, static_cast<int>(entries), Waking::kDescriptor) {}

void Cq::add(uint32_t qp_number, Qp& qp) {
    const std::lock_guard guard(lock_);
    qps_.emplace(qp_number, &qp);
}

void Cq::remove(uint32_t qp_number) noexcept {
    const std::lock_guard guard(lock_);
    std::array<tcpqp_completion, kPollBatch> batch;
    for (int n = poll_device(batch); n > 0; n = poll_device(batch))
        saved_.insert(saved_.end(), batch.begin(), batch.begin() + n);
    const auto at = qps_.find(qp_number);
    const tcpqp_qp* qp = at->second;
    qps_.erase(at);
    if (unrung_ == qp_number)
        unrung_ = 0;
    std::erase_if(saved_, [qp](const tcpqp_completion& c) { return c.qp == qp; });
    if (!saved_.empty())
        (void)cq_.descriptor().signal();
}

size_t Cq::translate(std::span<const ibv_wc> from, tcpqp_completion* out) noexcept {
    size_t n = 0;
    for (const ibv_wc& wc : from) {
        const auto at = qps_.find(wc.qp_num);
        if (at == qps_.end())
            continue;
        tcpqp_completion& c = out[n++];
        c = {0, at->second, 0, 0, 0, 0, status_of(wc.status)};
        at->second->completed(wc, c);
        if (wc.status != IBV_WC_SUCCESS)
            continue;
        c.length = wc.byte_len;
        if ((wc.wc_flags & IBV_WC_WITH_IMM) == 0)
            continue;
        c.imm = ntohl(wc.imm_data);
        c.flags = TCPQP_F_IMM;
    }
    return n;
}

int Cq::poll_device(std::span<tcpqp_completion> out) noexcept {
    std::array<ibv_wc, kPollBatch> batch;
    size_t n = 0;
    while (n < out.size()) {
        const size_t want = std::min(out.size() - n, batch.size());
        const int got = cq_.poll({batch.data(), want});
        if (got < 0)
            return -EIO;
        n += translate({batch.data(), static_cast<size_t>(got)}, out.data() + n);
        if (static_cast<size_t>(got) < want)
            break;
    }
    return static_cast<int>(n);
}

size_t Cq::take_saved(std::span<tcpqp_completion> out) noexcept {
    if (saved_.empty())
        return 0;
    size_t n = 0;
    for (; n < out.size() && !saved_.empty(); n++) {
        out[n] = saved_.front();
        saved_.pop_front();
    }
    if (saved_.empty())
        (void)cq_.descriptor().clear();
    return n;
}

int Cq::remember(int error) noexcept {
    if (error == EIDRM)
        end_ = -ENODEV;
    else if (error == EOVERFLOW)
        end_ = -EIO;
    return end_;
}

// Who polls an empty queue twice was woken for nothing, or does not sleep: then the
// descriptor is asked whether anything will come at all.
int Cq::poll(std::span<tcpqp_completion> out) noexcept {
    const std::lock_guard guard(lock_);
    const size_t saved = take_saved(out);
    const int got = poll_device(out.subspan(saved));
    if (got < 0)
        return got;
    const int n = static_cast<int>(saved) + got;
    if (n == 0 && std::exchange(woken_, false))
        (void)cq_.descriptor().clear();
    if (n == 0 && was_empty_)
        return remember(cq_.descriptor().wait(0));
    was_empty_ = n == 0;
    return n;
}

void Cq::wake() noexcept {
    const std::lock_guard guard(lock_);
    woken_ = true;
    (void)cq_.descriptor().signal();
}

// No signal takes a doorbell away.
int Cq::ring_now(uint32_t qp_number) noexcept {
    int error = EINTR;
    while (error == EINTR)
        error = cq_.descriptor().ring(qp_number);
    return error;
}

int Cq::ring(const Qp& qp) noexcept {
    if (unrung_ == qp.number())
        unrung_ = 0;
    const int error = ring_now(qp.number());
    return remember(error) != 0 ? -ENOTCONN : -error;
}

void Cq::ring_later(const Qp& qp) noexcept {
    const uint32_t before = std::exchange(unrung_, qp.number());
    if (before != 0 && before != qp.number())
        (void)ring_now(before);  // an error is that one's, and told by its completions
}

uint32_t Cq::take_unrung() noexcept {
    const std::lock_guard guard(lock_);
    return std::exchange(unrung_, 0);
}

void Cq::put_unrung(uint32_t qp_number) noexcept {
    const std::lock_guard guard(lock_);
    if (!qps_.contains(qp_number))
        return;
    if (unrung_ == 0)
        unrung_ = qp_number;
    else if (unrung_ != qp_number)  // another one's waits by now
        (void)ring_now(qp_number);
}

int Cq::wait(int timeout_ms) noexcept {
    const uint32_t unrung = take_unrung();
    int error = unrung != 0 ? cq_.descriptor().ring_and_wait(unrung, timeout_ms)
                            : cq_.descriptor().wait(timeout_ms);
    if (unrung != 0 && error == EINTR)
        put_unrung(unrung);
    if (unrung != 0 && error == ENOENT)  // it was destroyed meanwhile
        error = cq_.descriptor().wait(timeout_ms);
    return error == 0 || remember(error) != 0 ? 0 : -error;
}

}  // namespace tcpqp::module
