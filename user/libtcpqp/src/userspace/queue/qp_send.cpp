// SPDX-License-Identifier: BSD-3-Clause
// The sending half of a queue pair.  A send never waits in the kernel: what the
// socket has no room for is sent when it has, by whichever of these is first: a
// thread in wait() or poll(), or the pusher.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "userspace/queue/qp.hpp"

// Newer than Debian 12's liburing: Linux 6.2.
#ifndef IORING_SEND_ZC_REPORT_USAGE
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#define IORING_NOTIF_USAGE_ZC_COPIED (1U << 31)
#endif

namespace tcpqp::stock {

// One short message, and none before it that TCP has not.
inline bool Qp::may_send_alone(std::span<const tcpqp_work> works) const noexcept {
    return works.size() == 1 && works[0].length <= kCopyMaxBytes && framed_ && sends_.empty() &&
           sends_.room() != 0;
}

inline void Qp::completed_send(const tcpqp_work& work, int status) noexcept {
    if (status == 0) {
        info_.tx_messages++;
        info_.tx_bytes += work.length;
    }
    cq_.push({work.id, this, work.length, 0, TCPQP_OP_SEND, 0, status});
}

// Straight to TCP.  In line, like Cq::wait_by_socket(): the call may wake the peer on this CPU.
[[gnu::always_inline]] inline void Qp::send_alone(const tcpqp_work& work) noexcept {
    const bool has_imm = (work.flags & TCPQP_F_IMM) != 0;
    encode({FrameType::kMessage, work.length, tx_msn_, has_imm ? work.imm : 0, has_imm},
           alone_.data());
    if (work.length != 0) [[likely]]
        std::memcpy(&alone_[kFrameBytes], work.addr, work.length);
    const size_t bytes = kFrameBytes + work.length;
    const ssize_t n = ::send(socket_.get(), alone_.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n != static_cast<ssize_t>(bytes)) [[unlikely]]
        return send_rest(work, n);
    tx_msn_++;
    cq_.moved();
    sends_.pass();
    completed_send(work, 0);
}

// What TCP did not take all of goes by the queue and a flight.
void Qp::send_rest(const tcpqp_work& work, ssize_t sent) noexcept {
    const int result = sent < 0 ? -errno : static_cast<int>(sent);
    sends_.push(work);
    load(flight(in_use_++));
    took(flight(0), result);
    launch();
}

int Qp::post_send(std::span<const tcpqp_work> works) noexcept {
    const std::lock_guard guard(cq_.lock());
    int n = 1;
    if (may_send_alone(works)) [[likely]]
        send_alone(works[0]);
    else
        n = queue_sends(works);
    cq_.settle();
    return n;
}

int Qp::queue_sends(std::span<const tcpqp_work> works) noexcept {
    if (state_ == State::kEnded)
        return -ENOTCONN;
    const size_t n = std::min(works.size(), sends_.room());
    for (size_t i = 0; i < n; i++)
        sends_.push(works[i]);
    if (!stuck)
        launch();
    return n == 0 ? -EAGAIN : static_cast<int>(n);
}

// The peer's last words to us, which would turn a close into a reset as long as they lie unread.
void Qp::read_controls() noexcept {
    std::byte byte;
    while (in_option() && !receiving_ && rx_.is_at_control() &&
           ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT) == 1)
        rx_.pass_control();
}

void Qp::launch() noexcept {
    const bool waited = blocked_;
    send_queue();
    if (!waited || blocked_)
        return;
    read_controls();  // the credit's
    if (control_is_due())
        send_queue();
}

// Hands the queue to TCP as far as the socket has room.
void Qp::send_queue() noexcept {
    bool room = true;
    blocked_ = false;
    Flight* flight = nullptr;
    while (room && (flight = unsent()) != nullptr) {
        if (flight->zerocopy)
            return fly_zerocopy(*flight);
        room = took(*flight, hand_over(flight->message()));
    }
    set_waiting(!room || blocked_ || (!rx_.greeted() && !sends_.empty()));
}

int Qp::hand_over(const msghdr& message) const noexcept {
    // an skb never holds bytes of two messages: each has one option
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (in_option() ? MSG_EOR : 0);
    const iovec& first = message.msg_iov[0];
    const ssize_t n = message.msg_iovlen == 1
                          ? ::send(socket_.get(), first.iov_base, first.iov_len, flags)
                          : ::sendmsg(socket_.get(), &message, flags);
    return n < 0 ? -errno : static_cast<int>(n);
}

void Qp::set_waiting(bool waiting) noexcept {
    cq_.set_stuck(*this, waiting && state_ == State::kOpen);
    if (stuck)
        cq_.list(*this);
}

Flight* Qp::unsent() noexcept {
    if (!rx_.greeted() || state_ == State::kEnded)
        return nullptr;
    if (in_use_ != 0) {
        Flight& last = flight(in_use_ - 1);
        if (!last.sent())
            return last.in_kernel ? nullptr : &last;
    }
    if (in_use_ == flights_.size())
        return nullptr;
    if (!control_is_due()) {
        if (launched_ == sends_.size())
            return nullptr;
        blocked_ = in_option() && !option_->may_send(static_cast<uint16_t>(tx_msn_));
        if (blocked_ && eof_ && option_->is_starved()) {
            end(TCPQP_REASON_CLOSED, false);  // what TCP has may still arrive
            return nullptr;
        }
    }
    if (control_is_due())
        blocked_ = !option_->has_room();
    if (blocked_)
        return nullptr;
    Flight& next = flight(in_use_++);
    if (in_option())
        load_bare(next);
    else
        load(next);
    return &next;
}

// One message, described before TCP has a byte of it.
void Qp::load_bare(Flight& flight) noexcept {
    flight.begin();
    if (control_is_due()) {
        option_->announce_control();
        return flight.add_control();
    }
    const tcpqp_work& work = sends_[launched_++];
    option_->announce(static_cast<uint16_t>(tx_msn_++), work);
    flight.add_bare(work);
    flight.zerocopy =
        zerocopy_bytes_ != 0 && work.length >= zerocopy_bytes_ && work.length > kCopyMaxBytes;
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

// Ends at once, like a plain send; only the notification comes later.
void Qp::fly_zerocopy(Flight& flight) noexcept {
    io_uring_sqe* sqe = cq_.sqe(flight.op);
    if (sqe == nullptr)
        return end_by_errno(ENOMEM);
    io_uring_prep_sendmsg_zc(sqe, socket_.get(), &flight.message(),
                             MSG_NOSIGNAL | MSG_DONTWAIT | (in_option() ? MSG_EOR : 0));
    sqe->ioprio |= IORING_SEND_ZC_REPORT_USAGE;
    io_uring_sqe_set_data(sqe, &flight.op);
    flight.in_kernel = true;
    cq_.submit_and_reap();
}

void Qp::on_zerocopy(Flight& flight, int result, unsigned flags) noexcept {
    flight.in_kernel = false;
    if ((flags & IORING_CQE_F_MORE) != 0)
        flight.notifications++;
    if (state_ == State::kEnded)
        return;
    if (result == -EINVAL || result == -EOPNOTSUPP || result == -ENOMEM || result == -EFAULT) {
        // this kernel, socket or memory (a dma-buf's) has none, or `ulimit -l` is used up
        zerocopy_bytes_ = 0;
        flight.zerocopy = false;
        return launch();
    }
    if (result > 0)
        info_.tx_zerocopy_bytes += static_cast<size_t>(result);
    if (took(flight, result))
        return launch();
    set_waiting(true);
}

bool Qp::took(Flight& flight, int result) noexcept {
    if (result == -EAGAIN || result == -EINTR || result == -ECANCELED)
        return false;
    if (result < 0) {
        end_by_errno(-result);
        return false;
    }
    cq_.moved();
    flight.advance(static_cast<size_t>(result));
    if (in_option())
        option_->took(static_cast<uint32_t>(result));
    if (!flight.sent())
        return false;
    retire();
    return true;
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
        Flight& oldest = *flights_[first_];
        if (oldest.in_kernel || !oldest.sent() || oldest.notifications != 0)
            return;
        for (; oldest.messages != 0; oldest.messages--) {
            launched_--;
            complete_send(0);
        }
        first_ = at(1);
        in_use_--;
    }
}

void Qp::complete_send(int status) noexcept {
    completed_send(sends_[0], status);
    sends_.pop();
}

}  // namespace tcpqp::stock
