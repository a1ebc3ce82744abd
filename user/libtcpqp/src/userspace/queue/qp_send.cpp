// SPDX-License-Identifier: BSD-3-Clause
// The sending half of a queue pair.  A send never waits in the kernel: what the
// socket has no room for is sent when it has, by whichever of these is first: a
// thread in wait() or poll(), or the progress thread.
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

// What TCP did not take all of goes by the queue and a batch.
void Qp::send_rest(const tcpqp_work& work, ssize_t sent) noexcept {
    const int result = sent < 0 ? -errno : static_cast<int>(sent);
    sends_.push(work);
    load(batch(in_use_++));
    took(batch(0), result);
    launch();
}

int Qp::post_send(std::span<const tcpqp_work> works) noexcept {
    const std::lock_guard guard(cq_.lock());
    int n = 1;
    if (may_send_alone(works)) [[likely]]
        send_alone(works[0]);
    else
        n = queue_sends(works);
    cq_.finish_turn();
    return n;
}

int Qp::queue_sends(std::span<const tcpqp_work> works) noexcept {
    if (state_ == State::kEnded)
        return -ENOTCONN;
    const size_t n = std::min(works.size(), sends_.room());
    for (size_t i = 0; i < n; i++)
        sends_.push(works[i]);
    if (!send_blocked)
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
    SendBatch* batch = nullptr;
    while (room && (batch = unsent()) != nullptr) {
        if (batch->zerocopy)
            return send_zerocopy(*batch);
        room = took(*batch, hand_over(batch->message()));
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
    cq_.set_send_blocked(*this, waiting && state_ == State::kOpen);
    if (send_blocked)
        cq_.list(*this);
}

SendBatch* Qp::unsent() noexcept {
    if (!rx_.greeted() || state_ == State::kEnded)
        return nullptr;
    if (in_use_ != 0) {
        SendBatch& last = batch(in_use_ - 1);
        if (!last.sent())
            return last.in_kernel ? nullptr : &last;
    }
    if (in_use_ == batches_.size())
        return nullptr;
    if (!control_is_due()) {
        if (batched_ == sends_.size())
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
    SendBatch& next = batch(in_use_++);
    if (in_option())
        load_bare(next);
    else
        load(next);
    return &next;
}

// One message, described before TCP has a byte of it.
void Qp::load_bare(SendBatch& batch) noexcept {
    batch.begin();
    if (control_is_due()) {
        option_->announce_control();
        return batch.add_control();
    }
    const tcpqp_work& work = sends_[batched_++];
    option_->announce(static_cast<uint16_t>(tx_msn_++), work);
    batch.add_bare(work);
    batch.zerocopy =
        zerocopy_bytes_ != 0 && work.length >= zerocopy_bytes_ && work.length > kCopyMaxBytes;
}

void Qp::load(SendBatch& batch) noexcept {
    batch.begin();
    while (batched_ < sends_.size() && batch.has_room(sends_[batched_])) {
        const tcpqp_work& work = sends_[batched_];
        const bool zerocopy =
            zerocopy_bytes_ != 0 && work.length >= zerocopy_bytes_ && work.length > kCopyMaxBytes;
        if (zerocopy && batch.messages != 0)
            break;
        const bool has_imm = (work.flags & TCPQP_F_IMM) != 0;
        batch.add(
            Frame{FrameType::kMessage, work.length, tx_msn_++, has_imm ? work.imm : 0, has_imm},
            work);
        batch.zerocopy = zerocopy;
        batched_++;
    }
}

// Ends at once, like a plain send; only the notification comes later.
void Qp::send_zerocopy(SendBatch& batch) noexcept {
    io_uring_sqe* sqe = cq_.sqe(batch.op);
    if (sqe == nullptr)
        return end_by_errno(ENOMEM);
    io_uring_prep_sendmsg_zc(sqe, socket_.get(), &batch.message(),
                             MSG_NOSIGNAL | MSG_DONTWAIT | (in_option() ? MSG_EOR : 0));
    sqe->ioprio |= IORING_SEND_ZC_REPORT_USAGE;
    io_uring_sqe_set_data(sqe, &batch.op);
    batch.in_kernel = true;
    cq_.submit_and_reap();
}

void Qp::on_zerocopy(SendBatch& batch, int result, unsigned flags) noexcept {
    batch.in_kernel = false;
    if ((flags & IORING_CQE_F_MORE) != 0)
        batch.notifications++;
    if (state_ == State::kEnded)
        return;
    if (result == -EINVAL || result == -EOPNOTSUPP || result == -ENOMEM || result == -EFAULT) {
        // this kernel, socket or memory (a dma-buf's) has none, or `ulimit -l` is used up
        zerocopy_bytes_ = 0;
        batch.zerocopy = false;
        return launch();
    }
    if (took(batch, result))
        return launch();
    set_waiting(true);
}

bool Qp::took(SendBatch& batch, int result) noexcept {
    if (result == -EAGAIN || result == -EINTR || result == -ECANCELED)
        return false;
    if (result < 0) {
        end_by_errno(-result);
        return false;
    }
    cq_.moved();
    batch.advance(static_cast<size_t>(result));
    if (in_option())
        option_->took(static_cast<uint32_t>(result));
    if (!batch.sent())
        return false;
    retire();
    return true;
}

void Qp::on_notification(SendBatch& batch, int result) noexcept {
    batch.notifications--;
    if ((static_cast<unsigned>(result) & IORING_NOTIF_USAGE_ZC_COPIED) != 0) {
        batch.was_copied = true;
        zerocopy_bytes_ = 0;  // loopback and the like: a plain send is cheaper
    }
    if (state_ == State::kEnded)
        return;
    retire();
    launch();
}

void Qp::retire() noexcept {
    while (in_use_ != 0) {
        SendBatch& oldest = *batches_[first_];
        if (oldest.in_kernel || !oldest.sent() || oldest.notifications != 0)
            return;
        if (oldest.zerocopy && !oldest.was_copied)
            info_.tx_zerocopy_bytes += sends_[0].length;  // of its only message
        for (; oldest.messages != 0; oldest.messages--) {
            batched_--;
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
