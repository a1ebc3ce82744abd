// SPDX-License-Identifier: BSD-3-Clause
// The sending half of a queue pair: one send at a time is in the kernel, so
// that the stream stays in order; what is posted meanwhile goes in the next.
#include <algorithm>
#include <cerrno>

#include "stock/qp.hpp"

// Newer than Debian 12's liburing: Linux 6.2.
#ifndef IORING_SEND_ZC_REPORT_USAGE
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#define IORING_NOTIF_USAGE_ZC_COPIED (1U << 31)
#endif

namespace tcpqp::stock {

int Qp::post_send(std::span<const tcpqp_work> works) noexcept {
    const std::lock_guard guard(cq_.lock());
    if (state_ == State::kEnded)
        return -ENOTCONN;
    const size_t n = std::min(works.size(), sends_.room());
    for (size_t i = 0; i < n; i++)
        sends_.push(works[i]);
    launch();
    cq_.settle(false);
    return n == 0 ? -EAGAIN : static_cast<int>(n);
}

Flight* Qp::next_flight() noexcept {
    if (in_use_ != 0 && !flights_[(first_ + in_use_ - 1) % flights_.size()].sent())
        return nullptr;
    if (in_use_ == flights_.size())
        return nullptr;
    return &flights_[(first_ + in_use_++) % flights_.size()];
}

void Qp::launch() noexcept {
    if (!rx_.greeted() || state_ == State::kEnded || launched_ == sends_.size())
        return;
    Flight* flight = next_flight();
    if (flight == nullptr)
        return;
    load(*flight);
    fly(*flight);
}

void Qp::load(Flight& flight) noexcept {
    flight.begin();
    while (launched_ < sends_.size() && flight.has_room(sends_[launched_])) {
        const tcpqp_work& work = sends_[launched_];
        const bool zerocopy =
            zerocopy_bytes_ != 0 && work.length >= zerocopy_bytes_ && work.length > kCopyMaxBytes;
        if (zerocopy && flight.messages != 0)
            break;
        const bool has_imm = (work.flags & TCPQP_F_IMM) != 0;
        flight.add(
            Frame{FrameType::kMessage, work.length, tx_msn_++, has_imm ? work.imm : 0, has_imm},
            work);
        flight.zerocopy = zerocopy;
        launched_++;
    }
}

void Qp::fly(Flight& flight) noexcept {
    io_uring_sqe* sqe = cq_.sqe(flight.op, true);
    if (sqe == nullptr)
        return end_by_errno(ENOMEM);
    constexpr unsigned kFlags = MSG_NOSIGNAL | MSG_WAITALL;
    if (flight.zerocopy) {
        io_uring_prep_sendmsg_zc(sqe, socket_.get(), &flight.message(), kFlags);
        sqe->ioprio |= IORING_SEND_ZC_REPORT_USAGE;
    } else {
        io_uring_prep_sendmsg(sqe, socket_.get(), &flight.message(), kFlags);
    }
    io_uring_sqe_set_data(sqe, &flight.op);
    flight.in_kernel = true;
}

void Qp::on_send(Flight& flight, int result, unsigned flags) noexcept {
    flight.in_kernel = false;
    if ((flags & IORING_CQE_F_MORE) != 0)
        flight.notifications++;
    if (state_ == State::kEnded)
        return;
    if (flight.zerocopy && (result == -EINVAL || result == -EOPNOTSUPP || result == -ENOMEM)) {
        // this kernel or socket has none, or `ulimit -l` is used up
        zerocopy_bytes_ = 0;
        flight.zerocopy = false;
        return fly(flight);
    }
    if (result < 0 && result != -ECANCELED && result != -EINTR && result != -EAGAIN)
        return end_by_errno(-result);
    if (result > 0) {
        flight.advance(static_cast<size_t>(result));
        if (flight.zerocopy)
            info_.tx_zerocopy_bytes += static_cast<size_t>(result);
    }
    if (!flight.sent())
        return fly(flight);  // a short send, or the thread that submitted it is gone
    retire();
    launch();
}

void Qp::on_notification(Flight& flight, int result) noexcept {
    flight.notifications--;
    if ((static_cast<unsigned>(result) & IORING_NOTIF_USAGE_ZC_COPIED) != 0)
        zerocopy_bytes_ = 0;  // loopback and the like: a plain send is cheaper
    if (state_ == State::kEnded)
        return;
    retire();
    launch();
}

void Qp::retire() noexcept {
    while (in_use_ != 0) {
        Flight& oldest = flights_[first_];
        if (oldest.in_kernel || !oldest.sent() || oldest.notifications != 0)
            return;
        for (; oldest.messages != 0; oldest.messages--) {
            launched_--;
            complete_send(0);
        }
        first_ = (first_ + 1) % flights_.size();
        in_use_--;
    }
}

void Qp::complete_send(int status) noexcept {
    const tcpqp_work work = sends_.pop();
    if (status == 0) {
        info_.tx_messages++;
        info_.tx_bytes += work.length;
    }
    cq_.push({work.id, this, work.length, 0, TCPQP_OP_SEND, 0, status});
}

}  // namespace tcpqp::stock
