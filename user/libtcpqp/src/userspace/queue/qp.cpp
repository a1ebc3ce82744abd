// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/queue/qp.hpp"

#include <poll.h>
#include <tcp_qp/tcp_qp.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/reset.hpp"

namespace tcpqp::stock {

namespace {

// With zero copy each batch stays until the network is done with it.
size_t batches_of(const QpRequest& request) noexcept {
    return request.zerocopy_bytes != 0 ? request.sends : 1;
}

size_t batch_buffer_bytes(const QpRequest& request) noexcept {
    return std::clamp(kBatchBuffersBytes / batches_of(request), kBatchBufferMinBytes,
                      kBatchBufferBytes);
}

}  // namespace

Qp::Qp(Cq& queue, Fd socket, const QpRequest& request, Negotiation negotiation)
    : tcpqp_qp(queue),
      cq_(queue),
      socket_(std::move(socket)),
      option_(std::move(negotiation.option)),
      receives_(request.receives),
      rx_(negotiation.greeting.done),
      sends_(request.sends),
      zerocopy_bytes_(request.zerocopy_bytes),
      timeout_(socket_.get()),
      gather_(socket_.get()),
      ours_(negotiation.ours),
      receive_op_{Op::Kind::kReceive, this, nullptr},
      poll_op_{Op::Kind::kPoll, this, nullptr},
      wakeup_op_{Op::Kind::kWakeup, this, nullptr} {
    info_.engine = TCPQP_ENGINE_STOCK;
    for (size_t i = 0; i < batches_of(request); i++)
        batches_.push_back(std::make_unique<SendBatch>(*this, batch_buffer_bytes(request)));
    const std::lock_guard guard(cq_.lock());
    cq_.enter(request.sends + request.receives);
    for (const tcpqp_work& work : request.first)
        receives_.push(work);
    rx_.stop_at_hello();
    if (negotiation.greeting.done)
        greet(negotiation.greeting);
    receive();
    look_for_module();
    cq_.finish_turn();
}

// A thread that waits for the cq may be in recv(): nothing here wakes it without harm to a socket
// that stays the application's, but it comes back after kSocketWaitMs.
void Qp::wait_for_sleeper(Held& held) const noexcept {
    while (in_socket_) {
        held.unlock();
        ::poll(nullptr, 0, 1);
        held.lock();
    }
}

Qp::~Qp() {
    Held held(cq_.lock());
    state_ = State::kEnded;
    wanted_ = framed_ = false;
    wait_for_sleeper(held);
    stop_kernel();
    if (std::any_of(batches_.begin(), batches_.end(),
                    [](const auto& f) { return f->notifications != 0; }))
        tcpqp::reset_connection(socket_.get());
    cq_.drain([this] { return kernel_is_done(); });
    read_controls();
    flush();
    cq_.leave(*this, sends_.depth() + receives_.depth());
    cq_.finish_turn();
}

inline void Qp::completed_receive(const tcpqp_completion& c) noexcept {
    receives_.pop();
    if (c.status == 0) {
        info_.rx_messages++;
        info_.rx_bytes += c.length;
    }
    cq_.push(c);
}

void Qp::complete_receive(int status) noexcept {
    const Frame message = status == 0 ? rx_.frame() : Frame{};
    const uint16_t flags = message.has_imm ? TCPQP_F_IMM : 0;
    completed_receive(
        {receives_[0].id, this, message.length, message.imm, TCPQP_OP_RECV, flags, status});
}

// What a thread woke up for, most times.
inline bool Qp::receive_only(int result) noexcept {
    if (!framed_ || result <= 0 || receives_.empty()) [[unlikely]]
        return false;
    const tcpqp_work& oldest = receives_[0];
    uint32_t length = 0;
    if (!rx_.take_only(static_cast<size_t>(result), static_cast<std::byte*>(oldest.addr),
                       oldest.length, length)) [[unlikely]]
        return false;
    completed_receive({oldest.id, this, length, 0, TCPQP_OP_RECV, 0, 0});
    want_bytes();
    return true;
}

int Qp::post_recv(std::span<const tcpqp_work> works) noexcept {
    const std::lock_guard guard(cq_.lock());
    int n = 1;
    if (works.size() == 1 && wanted_ && receives_.room() != 0) [[likely]]
        receives_.push(works[0]);
    else
        n = queue_receives(works);
    cq_.finish_turn();
    return n;
}

int Qp::queue_receives(std::span<const tcpqp_work> works) noexcept {
    if (state_ == State::kEnded)
        return -ENOTCONN;
    const size_t n = std::min(works.size(), receives_.room());
    for (size_t i = 0; i < n; i++)
        receives_.push(works[i]);
    if (eof_)
        flush();
    else if (!receiving_ && !wanted_)
        receive();
    return n == 0 ? -EAGAIN : static_cast<int>(n);
}

int Qp::cancel() noexcept {
    const std::lock_guard guard(cq_.lock());
    end(TCPQP_REASON_CANCELED, true);
    cq_.finish_turn();
    return 0;
}

bool Qp::ended() noexcept {
    const std::lock_guard guard(cq_.lock());
    return state_ == State::kEnded;
}

int Qp::query(tcpqp_qp_info& info) noexcept {
    const std::lock_guard guard(cq_.lock());
    info = info_;
    info.reason = reason_ != TCPQP_REASON_NONE ? reason_ : cq_.context.reason;
    info.rx_copied_bytes = info.rx_bytes;
    info.rx_staged_bytes = rx_.staged_bytes();
    info.framing = framing_;
    return 0;
}

void Qp::on_cqe(const Op& op, int result, unsigned flags) noexcept {
    if (op.kind == Op::Kind::kReceive) {
        receiving_ = false;
        on_receive(result);
    } else if (op.kind == Op::Kind::kPoll) {
        polling_ = false;
        go_on();
    } else if (op.kind == Op::Kind::kWakeup) {
        listening_ = false;
        go_on();
    } else if ((flags & IORING_CQE_F_NOTIF) != 0) {
        on_notification(*op.batch, result);
    } else {
        on_zerocopy(*op.batch, result, flags);
    }
    flush();
}

void Qp::on_receive(int result) noexcept {
    if (state_ == State::kEnded)
        return;
    if (result <= 0)
        return on_no_bytes(result);
    look_for_module();  // after the read: a module's rtr is seen before its bytes can be read
    rx_.took(static_cast<size_t>(result));
    receive();
}

void Qp::on_no_bytes(int result) noexcept {
    // canceled, but not by us: the thread that submitted it is gone
    if (result == -ECANCELED || result == -EINTR || result == -EAGAIN)
        return want_bytes();
    if (result < 0)
        return end_by_errno(-result);
    if (!rx_.at_boundary())
        return end(rx_.greeted() ? TCPQP_REASON_TRUNCATED : TCPQP_REASON_CLOSED, true);
    eof_ = true;  // sends may go on
    reason_ = TCPQP_REASON_CLOSED;
    if (blocked_)
        launch();  // or not
}

void Qp::receive() noexcept {
    const bool waited = !rx_.greeted();
    while (!receives_.empty() &&
           rx_.take_whole(static_cast<std::byte*>(receives_[0].addr), receives_[0].length))
        complete_receive(0);
    if (!waited && rx_.is_at_header())
        return want_bytes();
    for (;;) {
        const Receiver::Step step = rx_.step();
        if (step == Receiver::Step::kNeedBuffer && !receives_.empty()) {
            rx_.give(static_cast<std::byte*>(receives_[0].addr), receives_[0].length);
            continue;
        }
        if (step == Receiver::Step::kMessage) {
            complete_receive(0);
            rx_.next();
            continue;
        }
        if (step == Receiver::Step::kHello) {
            greet({true, false, rx_.frame()});
            if (state_ == State::kOpen)
                continue;
            return;
        }
        if (rx_.greeted() && (waited || control_is_due()))
            launch();  // which may find that it has ended
        if (step == Receiver::Step::kNeedBytes && state_ == State::kOpen)
            want_bytes();
        if (step == Receiver::Step::kBroken)
            end(rx_.reason(), true);
        if (step == Receiver::Step::kRefused)
            refuse(TCPQP_REASON_NOT_A_SEND);
        if (step == Receiver::Step::kTooLong) {
            over_length_ = -EMSGSIZE;
            refuse(TCPQP_REASON_TOO_LONG);
        }
        return;
    }
}

void Qp::greet(const Greeting& greeting) noexcept {
    if (greeting.module)
        return use_option(false);
    switch (agree(ours_, greeting.peers)) {
        case Framing::kOption:
            return use_option(true);
        case Framing::kNone:
            return end(TCPQP_REASON_FRAMING, true);
        case Framing::kStream:
            break;
    }
    framing_ = TCPQP_FRAMING_STREAM;
    framed_ = true;
    if (option_)
        option_->stop();
    if (listening_)
        cq_.cancel(wakeup_op_);
    option_.reset();
}

void Qp::use_option(bool peer_is_stock) noexcept {
    framing_ = TCPQP_FRAMING_OPTION;
    option_->begin(peer_is_stock);
    rx_.use(option_->boundaries());
    launch();
}

// What the peer sent is its fault: in option framing it is told which message.
void Qp::refuse(uint32_t reason) noexcept {
    std::array<std::byte, TCP_BTH_TERMINATE_BYTES> operands;
    const bool at_end = in_use_ == 0 || batch(in_use_ - 1).sent();
    bool told = state_ == State::kOpen && in_option() && at_end &&
                option_->announce_terminate(rx_.begun(), operands.data());
    if (told)
        told = ::send(socket_.get(), operands.data(), operands.size(),
                      MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR) == ssize_t{TCP_BTH_TERMINATE_BYTES};
    end(reason, !told);
    if (told)
        ::shutdown(socket_.get(), SHUT_WR);
}

void Qp::end_by_errno(int error) noexcept {
    // a peer that is gone is no error of ours
    end(error == ENOMEM || error == EFAULT ? +TCP_QP_REASON_LOCAL_ERROR : +TCPQP_REASON_RESET,
        true);
}

void Qp::end(uint32_t reason, bool reset) noexcept {
    if (state_ == State::kEnded)
        return;
    state_ = State::kEnded;
    reason_ = reason;
    wanted_ = framed_ = false;
    cq_.set_send_blocked(*this, false);
    stop_kernel();
    if (in_socket_) {
        // the thread in there goes first
        ::shutdown(socket_.get(), SHUT_RDWR);
        reset_after_ = reset;
    } else if (reset) {
        tcpqp::reset_connection(socket_.get());
    }
    flush();
}

void Qp::stop_kernel() noexcept {
    if (receiving_)
        cq_.cancel(receive_op_);
    if (polling_)
        cq_.cancel(poll_op_);
    if (listening_)
        cq_.cancel(wakeup_op_);
    for (const auto& f : batches_)
        if (f->in_kernel)
            cq_.cancel(f->op);
}

bool Qp::kernel_is_done() const noexcept {
    return !receiving_ && !polling_ && !listening_ &&
           std::none_of(batches_.begin(), batches_.end(),
                        [](const auto& f) { return f->in_kernel || f->notifications != 0; });
}

void Qp::flush_ended() noexcept {
    const bool ended = state_ == State::kEnded;
    if (ended && !kernel_is_done())
        return;
    while (!receives_.empty()) {
        complete_receive(over_length_ != 0 ? over_length_ : -ECANCELED);
        over_length_ = 0;
    }
    while (ended && !sends_.empty())
        complete_send(-ECANCELED);
}

void Qp::want_bytes() noexcept {
    wanted_ = true;
    tried_ = false;
    cq_.list(*this);
}

// What has arrived of several messages comes by one read, which costs one ACK.
std::span<iovec> Qp::where_to() noexcept {
    const std::span<iovec> first = rx_.where();
    size_t next = 1;
    while (next < receives_.size() &&
           rx_.reach(static_cast<std::byte*>(receives_[next].addr), receives_[next].length))
        next++;
    return next == 1 ? first : rx_.places();
}

msghdr& Qp::receive_message() noexcept {
    const std::span<iovec> where = where_to();
    receive_message_ = {};
    receive_message_.msg_iov = where.data();
    receive_message_.msg_iovlen = where.size();
    return receive_message_;
}

bool Qp::attempt() noexcept {
    look_for_module();
    const uint64_t messages = info_.rx_messages;
    while (wanted_ && !tried_ && info_.rx_messages == messages) {
        const ssize_t n = ::recvmsg(socket_.get(), &receive_message(), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            tried_ = true;
            return true;
        }
        wanted_ = false;
        on_receive(n < 0 ? -errno : static_cast<int>(n));
        flush();
    }
    return wanted_ && !tried_;
}

ssize_t Qp::sleep_in_parts(std::span<iovec> where) const noexcept {
    msghdr message{};
    message.msg_iov = where.data();
    message.msg_iovlen = where.size();
    return ::recvmsg(socket_.get(), &message, 0);
}

void Qp::end_socket_wait(int result) noexcept {
    in_socket_ = receiving_ = false;
    if (receive_only(result)) [[likely]]
        return;
    if (std::exchange(reset_after_, false))
        tcpqp::reset_connection(socket_.get());
    on_receive(result);
    flush();
}

// The hello is left in the socket until somebody takes it, so that the progress thread can.
void Qp::arm() noexcept {
    if (wanted_ && rx_.greeted())
        arm_receive();
    arm_polls();
}

void Qp::arm_polls() noexcept {
    if (!polling_ && awaits() != 0 && (send_blocked || (wanted_ && !rx_.greeted())))
        arm_poll();
    if (!listening_ && state_ == State::kOpen && awaits_wakeup())
        arm_wakeup();
}

void Qp::arm_receive() noexcept {
    io_uring_sqe* sqe = cq_.sqe(receive_op_);
    if (sqe == nullptr)
        return end_by_errno(ENOMEM);
    io_uring_prep_recvmsg(sqe, socket_.get(), &receive_message(), 0);
    io_uring_sqe_set_data(sqe, &receive_op_);
    wanted_ = false;
    receiving_ = true;
}

void Qp::arm_poll() noexcept {
    io_uring_sqe* sqe = cq_.sqe(poll_op_);
    if (sqe == nullptr)
        return end_by_errno(ENOMEM);
    io_uring_prep_poll_add(sqe, socket_.get(), static_cast<unsigned>(awaits()));
    io_uring_sqe_set_data(sqe, &poll_op_);
    polling_ = true;
}

void Qp::arm_wakeup() noexcept {
    io_uring_sqe* sqe = cq_.sqe(wakeup_op_);
    if (sqe == nullptr)
        return end_by_errno(ENOMEM);
    io_uring_prep_poll_add(sqe, wakeup_fd(), POLLIN);
    io_uring_sqe_set_data(sqe, &wakeup_op_);
    listening_ = true;
}

short Qp::awaits() const noexcept { return blocked_ ? 0 : rx_.greeted() ? POLLOUT : POLLIN; }

void Qp::go_on() noexcept {
    if (rx_.greeted())
        return launch();
    tried_ = false;
    if (attempt())
        cq_.list(*this);
}

}  // namespace tcpqp::stock
