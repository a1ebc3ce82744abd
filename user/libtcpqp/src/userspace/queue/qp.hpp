// SPDX-License-Identifier: BSD-3-Clause
// A queue pair of the stock engine: frames on a TCP stream, moved by io_uring.
// The cq's lock protects all of it.
#pragma once

#include <cerrno>
#include <vector>

#include "base/fd.hpp"
#include "userspace/base/receive_timeout.hpp"
#include "userspace/frames/gather.hpp"
#include "userspace/option/option.hpp"
#include "userspace/queue/cq.hpp"
#include "userspace/queue/hello.hpp"
#include "userspace/queue/receiver.hpp"
#include "userspace/queue/send_batch.hpp"
#include "userspace/queue/work_queue.hpp"

namespace tcpqp::stock {

// What two ends know of each other when the queue pair is made.
struct Negotiation {
    std::unique_ptr<Option> option;               // tcpqp-bpf admitted the connection
    uint32_t without_option = TCPQP_REASON_NONE;  // why not
    Frame ours;
    Greeting greeting;
};

class Qp final : public tcpqp_qp {
public:
    // Throws.
    Qp(Cq& cq, Fd socket, const QpRequest& request, Negotiation negotiation);
    ~Qp() override;

    [[gnu::hot]] int post_send(std::span<const tcpqp_work> works) noexcept override;
    [[gnu::hot]] int post_recv(std::span<const tcpqp_work> works) noexcept override;
    int cancel() noexcept override;
    [[nodiscard]] bool ended() noexcept override;
    int query(tcpqp_qp_info& info) noexcept override;

    // For the cq; lock held.
    void on_cqe(const Op& op, int result, unsigned flags) noexcept;
    void on_poll(uint16_t opcode) noexcept {
        (opcode == TCPQP_OP_SEND ? sends_ : receives_).polled();
    }
    // Asks the socket itself.  False: ask the kernel to tell, by arm().
    bool attempt() noexcept;
    void try_again() noexcept { tried_ = false; }
    void arm() noexcept;
    void arm_polls() noexcept;  // all but the receive
    // There may be what it waits for.
    void go_on() noexcept;
    [[nodiscard]] short awaits() const noexcept;  // POLLOUT; POLLIN: the hello; 0: only a wakeup
    // It waits for what the socket does not tell: wakeup_fd() does.
    [[nodiscard]] bool awaits_wakeup() const noexcept {
        return blocked_ || (option_ && !rx_.greeted());
    }
    [[nodiscard]] int wakeup_fd() const noexcept { return option_->wakeup_fd(); }
    // ... or it is time to go on.
    [[nodiscard]] Pause::Clock::time_point looks_at() const noexcept {
        return blocked_ ? option_->looks_at() : Pause::kNever;
    }
    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    // A thread of the cq waits by recv(), in between with the lock released.
    [[nodiscard]] bool may_sleep_in_socket() const noexcept {
        return wanted_ && rx_.greeted() && !send_blocked && !polling_ && zerocopy_bytes_ == 0 &&
               state_ == State::kOpen && timeout_.is_set();
    }
    // ... for kSocketWaitMs, or without a limit.
    void limit_sleep(bool limited) noexcept { timeout_.limit(limited); }
    std::span<iovec> begin_socket_wait() noexcept {
        wanted_ = false;
        in_socket_ = receiving_ = true;
        gather_.begin(rx_.large_bytes(), info_.rx_messages, rx_.rest());
        return rx_.is_at_header() ? rx_.where() : where_to();
    }
    [[nodiscard]] int sleep_in_socket(std::span<iovec> where) noexcept {
        if (!gather_.wait())
            return -EINTR;
        const ssize_t n = where.size() != 1
                              ? sleep_in_parts(where)
                              : ::recv(socket_.get(), where[0].iov_base, where[0].iov_len, 0);
        const int result = n < 0 ? -errno : static_cast<int>(n);
        gather_.end();
        return result;
    }
    [[gnu::hot]] void end_socket_wait(int result) noexcept;
    bool listed = false;        // the cq's
    bool send_blocked = false;  // the cq's

private:
    enum class State : uint8_t { kOpen, kEnded };

    [[nodiscard]] ssize_t sleep_in_parts(std::span<iovec> where) const noexcept;
    [[gnu::hot]] void on_receive(int result) noexcept;
    void on_no_bytes(int result) noexcept;
    void on_zerocopy(SendBatch& batch, int result, unsigned flags) noexcept;
    void on_notification(SendBatch& batch, int result) noexcept;
    // A module's end says in no stream that it is one.
    void look_for_module() noexcept {
        if (option_ && !rx_.greeted() && option_->module_is_ready())
            use_option(false);
    }
    void greet(const Greeting& greeting) noexcept;
    void use_option(bool peer_is_stock) noexcept;
    void refuse(uint32_t reason) noexcept;
    [[nodiscard]] bool in_option() const noexcept { return framing_ == TCPQP_FRAMING_OPTION; }
    [[gnu::hot]] void receive() noexcept;  // what is staged, then ask for more
    [[gnu::hot]] void want_bytes() noexcept;
    std::span<iovec> where_to() noexcept;
    msghdr& receive_message() noexcept;
    void arm_receive() noexcept;
    void arm_poll() noexcept;
    void arm_wakeup() noexcept;
    void launch() noexcept;
    [[nodiscard]] int hand_over(const msghdr& message) const noexcept;
    void set_waiting(bool waiting) noexcept;
    SendBatch* unsent() noexcept;
    [[nodiscard]] size_t at(size_t i) const noexcept {
        return first_ + i < batches_.size() ? first_ + i : first_ + i - batches_.size();
    }
    // The one that is @i behind the oldest.
    [[nodiscard]] SendBatch& batch(size_t i) const noexcept { return *batches_[at(i)]; }
    [[nodiscard]] bool may_send_alone(std::span<const tcpqp_work> works) const noexcept;
    int queue_sends(std::span<const tcpqp_work> works) noexcept;
    void send_alone(const tcpqp_work& work) noexcept;
    void send_rest(const tcpqp_work& work, ssize_t sent) noexcept;
    void load(SendBatch& batch) noexcept;
    void load_bare(SendBatch& batch) noexcept;
    [[nodiscard]] bool control_is_due() const noexcept {
        return in_option() && option_->control_is_due();
    }
    void send_queue() noexcept;
    void read_controls() noexcept;
    void send_zerocopy(SendBatch& batch) noexcept;
    // TCP's answer to a send.  False: no more now.
    bool took(SendBatch& batch, int result) noexcept;
    void retire() noexcept;
    int queue_receives(std::span<const tcpqp_work> works) noexcept;
    bool receive_only(int result) noexcept;
    void complete_receive(int status) noexcept;
    void completed_receive(const tcpqp_completion& completion) noexcept;
    void complete_send(int status) noexcept;
    void completed_send(const tcpqp_work& work, int status) noexcept;
    // No more work; @reset: tell the peer, and let the network drop our buffers.
    void end(uint32_t reason, bool reset) noexcept;
    void end_by_errno(int error) noexcept;
    void flush() noexcept {
        if (state_ == State::kEnded || eof_)
            flush_ended();
    }
    void flush_ended() noexcept;  // once the kernel is done with all buffers
    [[nodiscard]] bool kernel_is_done() const noexcept;
    void wait_for_sleeper(Held& held) const noexcept;
    void stop_kernel() noexcept;

    Cq& cq_;
    Fd socket_;
    State state_ = State::kOpen;
    bool receiving_ = false;    // the kernel has receive_op_
    bool polling_ = false;      // the kernel has poll_op_
    bool listening_ = false;    // the kernel has wakeup_op_
    bool wanted_ = false;       // bytes are wanted, and not asked for yet
    bool tried_ = false;        // no wanted bytes were there
    bool framed_ = false;       // frames are agreed on, and it has not ended
    bool in_socket_ = false;    // receiving_, by recv() of a thread
    bool reset_after_ = false;  // that thread is woken, and then the connection reset
    bool eof_ = false;
    bool blocked_ = false;  // a message waits for credit or for room to describe it
    uint32_t framing_ = TCPQP_FRAMING_NONE;
    std::unique_ptr<Option> option_;  // until frames are agreed on

    WorkQueue receives_;
    Receiver rx_;

    WorkQueue sends_;
    uint32_t tx_msn_ = 0;
    uint32_t zerocopy_bytes_;
    std::vector<std::unique_ptr<SendBatch>> batches_;  // in order; in_use_ of them from first_
    size_t first_ = 0;
    size_t in_use_ = 0;
    size_t batched_ = 0;  // of sends_

    ReceiveTimeout timeout_;
    Gather gather_;
    Frame ours_;  // hello
    uint32_t reason_ = TCPQP_REASON_NONE;
    int over_length_ = 0;  // status of the first receive when it all ended
    Op receive_op_;
    Op poll_op_;
    Op wakeup_op_;
    msghdr receive_message_{};

    tcpqp_qp_info info_{};
    std::array<std::byte, kFrameBytes + kCopyMaxBytes> alone_;  // what send_alone() sends
};

}  // namespace tcpqp::stock
