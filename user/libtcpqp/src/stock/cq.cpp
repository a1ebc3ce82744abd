// SPDX-License-Identifier: BSD-3-Clause
#include "stock/cq.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "stock/limits.hpp"
#include "stock/qp.hpp"

namespace tcpqp::stock {

Cq::Cq(tcpqp_context& owner, uint32_t entries) : tcpqp_cq(owner) {
    io_uring_params params{};
    params.flags = IORING_SETUP_CLAMP;
    const int error = io_uring_queue_init_params(
        std::clamp(entries / 4, kRingEntriesMin, kRingEntriesMax), &ring_, &params);
    if (error < 0)
        throw std::system_error(-error, std::generic_category(), "io_uring");
}

Cq::~Cq() { io_uring_queue_exit(&ring_); }

void Cq::add_room(size_t count) {
    std::vector<tcpqp_completion> larger(room_ + count);
    for (size_t i = 0; i < count_; i++)
        larger[i] = ready_[(head_ + i) % ready_.size()];
    ready_ = std::move(larger);
    head_ = 0;
    room_ += count;
}

io_uring_sqe* Cq::sqe(Op& op, bool urgent) noexcept {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {
        submit();
        sqe = io_uring_get_sqe(&ring_);
    }
    if (sqe == nullptr)
        return nullptr;
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, &op);
    urgent_ |= urgent;
    return sqe;
}

void Cq::cancel(Op& op) noexcept {
    io_uring_sqe* s = sqe(nobody_, true);
    if (s == nullptr)
        return;  // the socket was shut down too
    io_uring_prep_cancel(s, &op, 0);
    io_uring_sqe_set_data(s, &nobody_);
}

void Cq::push(const tcpqp_completion& completion) noexcept {
    ready_[(head_ + count_++) % ready_.size()] = completion;
}

void Cq::forget(const tcpqp_qp* qp) noexcept {
    size_t kept = 0;
    for (size_t i = 0; i < count_; i++) {
        const tcpqp_completion c = ready_[(head_ + i) % ready_.size()];
        if (c.qp != qp)
            ready_[(head_ + kept++) % ready_.size()] = c;
    }
    count_ = kept;
}

void Cq::release_held() noexcept {
    if (held_)
        io_uring_cq_advance(&ring_, 1);
    held_ = false;
}

void Cq::reap() noexcept {
    release_held();
    do {
        unsigned head = 0, n = 0;
        io_uring_cqe* cqe = nullptr;
        release_held();
        io_uring_for_each_cqe(&ring_, head, cqe) {
            const auto* op = static_cast<const Op*>(io_uring_cqe_get_data(cqe));
            if (op->qp != nullptr)
                op->qp->on_cqe(*op, cqe->res, cqe->flags);
            n++;
        }
        if (n != 0) {
            io_uring_cq_advance(&ring_, n - 1);
            held_ = true;
        }
    } while (io_uring_cq_has_overflow(&ring_) && io_uring_get_events(&ring_) == 0);
}

void Cq::submit() noexcept {
    // -EBUSY, -EAGAIN: what is not taken stays in the queue for the next call
    io_uring_submit(&ring_);
    urgent_ = false;
}

void Cq::nudge() noexcept {
    if (sqe(nobody_, true) != nullptr)
        submit();
}

void Cq::settle(bool idle) noexcept {
    if (io_uring_sq_ready(&ring_) != 0 && (idle || urgent_ || io_uring_cq_ready(&ring_) == 0))
        submit();
    if (count_ == 0 && io_uring_sq_ready(&ring_) == 0)
        release_held();
    else if (io_uring_cq_ready(&ring_) == 0)
        nudge();
}

int Cq::poll(std::span<tcpqp_completion> out) noexcept {
    const std::lock_guard guard(lock_);
    if (count_ < out.size())
        reap();
    const size_t n = std::min(count_, out.size());
    for (size_t i = 0; i < n; i++) {
        out[i] = ready_[(head_ + i) % ready_.size()];
        static_cast<Qp*>(out[i].qp)->on_poll(out[i].opcode);
    }
    if (n != 0)
        head_ = (head_ + n) % ready_.size();
    count_ -= n;
    settle(n == 0);
    return static_cast<int>(n);
}

int Cq::wait(int timeout_ms) noexcept {
    {
        const std::lock_guard guard(lock_);
        release_held();
        settle(true);
        if (count_ != 0 || io_uring_cq_ready(&ring_) != 0)
            return 0;
    }
    __kernel_timespec limit{timeout_ms / 1000, (timeout_ms % 1000) * 1000000LL};
    io_uring_getevents_arg arg{};
    if (timeout_ms >= 0)
        arg.ts = reinterpret_cast<uint64_t>(&limit);
    const int n = io_uring_enter2(static_cast<unsigned>(ring_.ring_fd), 0, 1,
                                  IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                                  reinterpret_cast<sigset_t*>(&arg), sizeof(arg));
    return n >= 0 ? 0 : n == -ETIME ? -ETIMEDOUT : n;
}

void Cq::wait_one() noexcept {
    release_held();
    io_uring_submit_and_wait(&ring_, 1);
    urgent_ = false;
}

}  // namespace tcpqp::stock
