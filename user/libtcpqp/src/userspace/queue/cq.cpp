// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/queue/cq.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "provider/deadline.hpp"
#include "userspace/base/limits.hpp"
#include "userspace/queue/qp.hpp"

namespace tcpqp::stock {

namespace {

// IORING_SETUP_NO_SQARRAY, which Debian 12's header lacks
constexpr unsigned kNoSqArray = 1U << 16;

}  // namespace

Cq::Cq(tcpqp_context& owner, uint32_t entries, uint32_t flags)
    : tcpqp_cq(owner),
      single_threaded_((flags & TCPQP_CQ_F_SINGLE_THREADED) != 0),
      spinning_((flags & TCPQP_CQ_F_SPINNING) != 0) {
    io_uring_params params{};
    params.flags = IORING_SETUP_CLAMP;
    const int error = io_uring_queue_init_params(
        std::clamp(entries / 4, kRingEntriesMin, kRingEntriesMax), &ring_, &params);
    if (error < 0)
        throw std::system_error(-error, std::generic_category(), "io_uring");
}

Cq::~Cq() {
    progress_thread_.stop();
    io_uring_queue_exit(&ring_);
}

int Cq::fd() noexcept {
    const std::lock_guard guard(lock_);
    fd_is_known_ = true;
    quiet_ = false;
    finish_turn();
    return ring_.ring_fd;
}

void Cq::enter(size_t count) {
    listed_.reserve(listed_.capacity() + 1);
    send_blocked_.reserve(send_blocked_.capacity() + 1);
    Ring<tcpqp_completion> larger(room_ + count);
    for (size_t i = 0; i < ready_.size(); i++)
        larger.push(ready_[i]);
    ready_ = std::move(larger);
    room_ += count;
}

void Cq::leave(Qp& qp, size_t count) noexcept {
    set_send_blocked(qp, false);
    std::erase(listed_, &qp);
    ready_.drop_if([&qp](const tcpqp_completion& c) { return c.qp == &qp; });
    room_ -= count;
}

void Cq::list(Qp& qp) noexcept {
    if (std::exchange(qp.listed, true))
        return;
    listed_.push_back(&qp);
}

void Cq::set_send_blocked(Qp& qp, bool send_blocked) noexcept {
    if (!send_blocked && !qp.send_blocked)
        return;
    const bool before = std::exchange(qp.send_blocked, send_blocked);
    quiet_ = false;
    if (!before)
        send_blocked_.push_back(&qp);
    else if (!send_blocked)
        std::erase(send_blocked_, &qp);
    progress_thread_.kick();  // it may wait for another thing now
}

io_uring_sqe* Cq::sqe(Op& op) noexcept {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {
        submit();
        sqe = io_uring_get_sqe(&ring_);
    }
    if (sqe == nullptr)
        return nullptr;
    in_ring_++;
    quiet_ = false;
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, &op);
    return sqe;
}

void Cq::cancel(Op& op) noexcept {
    io_uring_sqe* s = sqe(nobody_);
    if (s == nullptr)
        return;  // the socket was shut down too
    io_uring_prep_cancel(s, &op, 0);
    io_uring_sqe_set_data(s, &nobody_);
}

void Cq::release_held() noexcept {
    if (held_)
        io_uring_cq_advance(&ring_, 1);
    held_ = false;
}

void Cq::reap() noexcept {
    do {
        unsigned head = 0, n = 0;
        io_uring_cqe* cqe = nullptr;
        release_held();
        io_uring_for_each_cqe(&ring_, head, cqe) {
            const auto* op = static_cast<const Op*>(io_uring_cqe_get_data(cqe));
            if (op->qp != nullptr)
                op->qp->on_cqe(*op, cqe->res, cqe->flags);
            in_ring_ -= (cqe->flags & IORING_CQE_F_MORE) == 0 ? 1 : 0;
            n++;
        }
        if (n != 0) {
            io_uring_cq_advance(&ring_, n - 1);
            held_ = true;
        }
    } while (io_uring_cq_has_overflow(&ring_) && io_uring_get_events(&ring_) == 0);
}

// -EBUSY, -EAGAIN: what is not taken stays in the queue for the next call.
void Cq::submit() noexcept { io_uring_submit(&ring_); }

void Cq::submit_and_reap() noexcept {
    submit();
    reap_again_ = true;
}

void Cq::signal() noexcept {
    if (sqe(nobody_) != nullptr)
        submit();
}

void Cq::arm_listed() noexcept {
    for (Qp* qp : listed_) {
        qp->listed = false;
        qp->arm();
    }
    listed_.clear();
}

// For an application that polls and does not wait: ask the sockets once, then
// leave it to the ring; or, if it spins, ask each time, and leave only room to the ring.
void Cq::attempt_listed() noexcept {
    size_t kept = 0;
    for (Qp* qp : listed_) {
        if (spinning_)
            qp->try_again();
        if (qp->attempt()) {
            listed_[kept++] = qp;
            if (spinning_)
                qp->arm_polls();
            continue;
        }
        qp->listed = false;
        qp->arm();
    }
    listed_.resize(kept);
}

// What began to wait for a time may have done so while they slept, for longer.
void Cq::hurry_sleepers() noexcept {
    const auto look = looks_at();
    for (const Sleeper* s = sleepers_; s != nullptr; s = s->next)
        if (s->until <= look)
            return;
    for (Sleeper* s = sleepers_; s != nullptr; s = s->next)
        s->until = look;  // each is woken, and looks how long it may sleep
    signal();
}

void Cq::finish_turn_slowly() noexcept {
    if (asked_.load(std::memory_order_relaxed)) {
        asked_.store(false, std::memory_order_relaxed);
        go_on_blocked();
    }
    while (std::exchange(reap_again_, false))
        reap();
    if (is_watched())
        arm_listed();
    if (io_uring_sq_ready(&ring_) != 0)
        submit();
    if (ready_.empty())
        release_held();
    else if (is_watched() && io_uring_cq_ready(&ring_) == 0)
        signal();
    if (sleepers_ != nullptr && !send_blocked_.empty())
        hurry_sleepers();
    is_shared_ |= in_socket_ && !ready_.empty();
    if (is_left_alone())
        progress_thread_.watch();
    quiet_ = ring_is_idle() && !is_watched() && send_blocked_.empty();
}

inline size_t Cq::hand_out(std::span<tcpqp_completion> out) noexcept {
    const size_t n = std::min(out.size(), ready_.size());
    for (size_t i = 0; i < n; i++) {
        out[i] = ready_[i];
        static_cast<Qp*>(out[i].qp)->on_poll(out[i].opcode);
    }
    ready_.pop(n);
    return n;
}

// There may be more than is ready.
void Cq::look(size_t wanted) noexcept {
    if (ready_.size() < wanted && !ring_is_idle())
        reap();
    if (ready_.empty() && (polled_empty_ || spinning_))
        attempt_listed();
}

int Cq::poll(std::span<tcpqp_completion> out) noexcept {
    const std::lock_guard guard(lock_);
    if (!quiet_ || ready_.empty()) [[unlikely]]
        look(out.size());
    const size_t n = hand_out(out);
    polled_empty_ = n == 0;
    finish_turn();
    return static_cast<int>(n);
}

// Queued SQEs become the kernel's by the caller's own io_uring_enter(): the
// lock can't be held in there.  liburing fills the array in either place.  Since 2.6 it makes rings
// without one where the kernel can.
unsigned Cq::publish_sqes() noexcept {
    io_uring_sq& sq = ring_.sq;
    const unsigned n = sq.sqe_tail - sq.sqe_head;
    if ((ring_.flags & kNoSqArray) == 0)
        for (; sq.sqe_head != sq.sqe_tail; sq.sqe_head++)
            sq.array[sq.sqe_head & sq.ring_mask] = sq.sqe_head & sq.ring_mask;
    sq.sqe_head = sq.sqe_tail;
    io_uring_smp_store_release(sq.ktail, sq.sqe_tail);
    return n;
}

// io_uring_enter() tells of a signal or the time's end only if it submitted nothing.
int Cq::enter_and_wait(unsigned submissions, unsigned tail, int timeout_ms) noexcept {
    const Deadline deadline(timeout_ms);
    __kernel_timespec limit{timeout_ms / 1000, (timeout_ms % 1000) * 1000000LL};
    io_uring_getevents_arg arg{};
    if (timeout_ms >= 0)
        arg.ts = reinterpret_cast<uint64_t>(&limit);
    const int n = io_uring_enter2(static_cast<unsigned>(ring_.ring_fd), submissions, 1,
                                  IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                                  reinterpret_cast<sigset_t*>(&arg), sizeof(arg));
    if (n < 0)
        return n == -ETIME ? -ETIMEDOUT : n;
    // what another thread's call has submitted meanwhile is missing here, and then nothing waited
    if (static_cast<unsigned>(n) < submissions || io_uring_smp_load_acquire(ring_.cq.ktail) != tail)
        return 0;
    return deadline.over() ? -ETIMEDOUT : -EINTR;
}

int Cq::wait_by_ring(int timeout_ms) noexcept {
    const Deadline deadline(timeout_ms);
    for (;;) {
        const int left_ms = deadline.left_ms();
        const auto look = looks_at();
        const int look_ms = ms_until(look);
        const bool cut = look_ms >= 0 && (left_ms < 0 || left_ms > look_ms);
        const int error = cut ? wait_slice(look_ms, look) : wait_slice(left_ms, deadline.at());
        if (!cut || error != -ETIMEDOUT)
            return error;
        go_on_blocked();
        if (!ready_.empty())
            return 0;
    }
}

int Cq::wait_slice(int timeout_ms, Pause::Clock::time_point until) noexcept {
    waiters_++;
    quiet_ = false;
    arm_listed();
    if (io_uring_cq_ready(&ring_) != 0) {  // by what was submitted since somebody looked
        waiters_--;
        return 0;
    }
    const unsigned tail = io_uring_smp_load_acquire(ring_.cq.ktail);
    const unsigned submissions = publish_sqes();
    Sleeper self{until, sleepers_};
    sleepers_ = &self;
    lock_.unlock();
    const int error = enter_and_wait(submissions, tail, timeout_ms);
    lock_.lock();
    Sleeper** at = &sleepers_;
    while (*at != &self)
        at = &(*at)->next;
    *at = self.next;
    waiters_--;
    return error;
}

// A round trip by recv() costs a fifth less than one by the ring.  But only bytes
// wake a thread from there, so: one queue pair, one thread, and not for long.
inline Qp* Cq::only_one(int timeout_ms) const noexcept {
    const bool alone = !fd_is_known_ && !is_shared_ && waiters_ == 0 && listed_.size() == 1;
    const bool long_enough = timeout_ms < 0 || timeout_ms > kSocketWaitMs;
    return alone && long_enough && qps == 1 && listed_[0]->may_sleep_in_socket() ? listed_[0]
                                                                                 : nullptr;
}

// In line, with what it calls: after a sleep each return to a caller from before is
// mispredicted (Linux fills the processor's return stack at a switch), some 10 ns apiece.
//
// -EAGAIN: nothing came within kSocketWaitMs, which is no limit if only bytes may wake it; -EINTR:
// a signal; else there may be something to look at.  What io_uring does for a ring of this thread,
// also for one that is gone, ends a recv() that has a limit as a signal does, and no other.
[[gnu::always_inline]] inline int Cq::wait_by_socket(Qp& qp, int timeout_ms) noexcept {
    const bool limited = !single_threaded_ || !quiet_ || timeout_ms >= 0;
    qp.limit_sleep(limited);
    in_socket_ = true;
    const std::span<iovec> where = qp.begin_socket_wait();
    lock_.unlock();
    const int result = qp.sleep_in_socket(where);
    lock_.lock();
    in_socket_ = false;
    qp.end_socket_wait(result);
    return result == -EINTR && limited ? 0 : result;
}

[[gnu::always_inline]] inline int Cq::wait_for_one(int timeout_ms) noexcept {
    const Deadline deadline(timeout_ms);
    Qp* qp = only_one(timeout_ms);
    if (qp != nullptr) {
        const int result = wait_by_socket(*qp, timeout_ms);
        if ((result != -EAGAIN && result != -EINTR) || !ready_.empty()) [[likely]]
            return 0;
        if (result == -EINTR)
            return -EINTR;
    }
    return wait_by_ring(deadline.left_ms());
}

int Cq::wait(int timeout_ms) noexcept {
    const std::lock_guard guard(lock_);
    release_held();
    polled_empty_ = false;
    int error = 0;
    if (ready_.empty() && (ring_is_idle() || io_uring_cq_ready(&ring_) == 0))
        error = wait_for_one(timeout_ms);
    finish_turn();
    return error;
}

// Its CQE stays in the ring until somebody looks.
void Cq::wake() noexcept {
    const std::lock_guard guard(lock_);
    (void)sqe(nobody_);
    finish_turn();
}

Pause::Clock::time_point Cq::looks_at() const noexcept {
    auto first = Pause::kNever;
    for (const Qp* qp : send_blocked_)
        first = std::min(first, qp->looks_at());
    return first;
}

int Cq::ms_until(Pause::Clock::time_point when) noexcept {
    if (when == Pause::kNever)
        return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Pause::Clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

void Cq::go_on_blocked() noexcept {
    for (size_t i = send_blocked_.size(); i-- > 0;)
        if (i < send_blocked_.size())
            send_blocked_[i]->go_on();
}

void Cq::send_more() noexcept {
    go_on_blocked();
    finish_turn();
}

void Cq::wait_one() noexcept {
    release_held();
    io_uring_submit_and_wait(&ring_, 1);
}

}  // namespace tcpqp::stock
