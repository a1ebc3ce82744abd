// SPDX-License-Identifier: BSD-3-Clause
// One io_uring, the completions of its queue pairs, and the lock of both.
//
// The descriptor is the ring's own: readable while a CQE waits.  Nobody can
// watch it before fd() was asked for, so until then, and while no thread is in
// wait(), nothing is put into the kernel in advance and no CQE is made just to
// wake somebody.  The last CQE is left in the ring ("held") while completions
// are not handed out yet, for level-triggered waiters.
#pragma once

#include <liburing.h>

#include <atomic>
#include <vector>

#include "provider/provider.hpp"
#include "userspace/base/lock.hpp"
#include "userspace/base/ring.hpp"
#include "userspace/option/pause.hpp"
#include "userspace/queue/progress_thread.hpp"

namespace tcpqp::stock {

class Qp;
class SendBatch;

// What a CQE belongs to; its address is the SQE's user_data.
struct Op {
    enum class Kind : uint8_t { kNobody, kReceive, kPoll, kWakeup, kBatch };
    Kind kind = Kind::kNobody;
    Qp* qp = nullptr;
    SendBatch* batch = nullptr;
};

class Cq final : public tcpqp_cq {
public:
    // Throws std::system_error: io_uring refused.
    Cq(tcpqp_context& context, uint32_t entries, uint32_t flags);
    ~Cq() override;

    [[nodiscard]] int fd() noexcept override;
    // [[gnu::hot]], here and elsewhere: what a round trip runs lies on few pages.
    [[gnu::hot]] int poll(std::span<tcpqp_completion> out) noexcept override;
    [[gnu::hot]] int wait(int timeout_ms) noexcept override;
    void wake() noexcept override;

    // For queue pairs and the progress thread; all with the lock held.
    [[nodiscard]] Lock& lock() noexcept { return lock_; }
    // A queue pair with up to @count completions comes.  May throw std::bad_alloc.
    void enter(size_t count);
    void leave(Qp& qp, size_t count) noexcept;
    // nullptr: the kernel takes no more.  Submitted by finish_turn(), wait() or submit().
    io_uring_sqe* sqe(Op& op) noexcept;
    void submit() noexcept;
    // An SQE that the kernel completes at once; its CQE is handled before the unlock.
    void submit_and_reap() noexcept;
    void cancel(Op& op) noexcept;
    void push(const tcpqp_completion& completion) noexcept { ready_.push(completion); }
    void reap() noexcept;
    // @qp needs something of the kernel before anyone waits: its arm().
    [[gnu::hot]] void list(Qp& qp) noexcept;
    // @qp has sends that wait for its socket, or no more.
    void set_send_blocked(Qp& qp, bool send_blocked) noexcept;
    void moved() noexcept { moves_++; }
    // Handles CQEs until @done; the lock stays taken.
    template <typename Done>
    void drain(Done done) noexcept {
        for (reap(); !done(); reap())
            wait_one();
    }
    // Before each unlock.
    void finish_turn() noexcept {
        if (!quiet_ || in_socket_) [[unlikely]]
            finish_turn_slowly();
    }

    // For the progress thread: somebody's bytes wait, and no thread is in wait().
    [[nodiscard]] bool is_left_alone() const noexcept {
        return !send_blocked_.empty() && waiters_ == 0;
    }
    [[nodiscard]] uint64_t moves() const noexcept { return moves_; }
    [[nodiscard]] std::span<Qp* const> send_blocked() const noexcept { return send_blocked_; }
    // When one of them must look though nothing woke it, and until then, or -1.
    [[nodiscard]] Pause::Clock::time_point looks_at() const noexcept;
    [[nodiscard]] int look_in_ms() const noexcept { return ms_until(looks_at()); }
    void send_more() noexcept;
    // Whoever has the lock does, lock not held: no matter if it is too late for that.
    void ask_to_send_more() noexcept { asked_.store(true, std::memory_order_relaxed); }

private:
    [[nodiscard]] bool is_watched() const noexcept { return fd_is_known_ || waiters_ != 0; }
    // The ring has no part in what goes on.
    [[nodiscard]] bool ring_is_idle() const noexcept { return in_ring_ == 0 && !held_; }
    // A thread that sleeps in the ring, until when.
    struct Sleeper {
        Pause::Clock::time_point until;
        Sleeper* next;
    };
    void finish_turn_slowly() noexcept;
    void hurry_sleepers() noexcept;
    [[nodiscard]] static int ms_until(Pause::Clock::time_point when) noexcept;
    void arm_listed() noexcept;
    void attempt_listed() noexcept;
    void look(size_t wanted) noexcept;
    size_t hand_out(std::span<tcpqp_completion> out) noexcept;
    void release_held() noexcept;
    unsigned publish_sqes() noexcept;
    // The queue pair whose socket wait() may sleep on itself, or nullptr.
    Qp* only_one(int timeout_ms) const noexcept;
    // These release the lock while they sleep.
    int wait_for_one(int timeout_ms) noexcept;
    int wait_by_socket(Qp& qp, int timeout_ms) noexcept;
    int wait_by_ring(int timeout_ms) noexcept;
    int wait_slice(int timeout_ms, Pause::Clock::time_point until) noexcept;
    void go_on_blocked() noexcept;
    int enter_and_wait(unsigned submissions, unsigned tail, int timeout_ms) noexcept;
    void wait_one() noexcept;
    void signal() noexcept;

    // What each call looks at lies together, here and in Qp and Receiver: a round trip finds
    // the first-level cache full of the kernel's lines.
    Lock lock_;
    bool quiet_ = false;      // finish_turn_slowly() had nothing to do, nor has it since
    bool in_socket_ = false;  // a thread sleeps in recv(), where nothing but bytes wakes it
    bool held_ = false;       // the first CQE in the ring has been handled
    bool reap_again_ = false;
    bool fd_is_known_ = false;
    bool polled_empty_ = false;  // by the last call
    bool is_shared_ = false;     // another thread had something for it meanwhile: never again
    const bool single_threaded_;
    const bool spinning_;
    unsigned waiters_ = 0;  // threads in wait()
    size_t in_ring_ = 0;    // SQEs whose last CQE was not seen
    Ring<tcpqp_completion> ready_{0};
    std::vector<Qp*> listed_;
    uint64_t moves_ = 0;  // sends that TCP took bytes of
    std::vector<Qp*> send_blocked_;
    std::atomic<bool> asked_{false};
    Sleeper* sleepers_ = nullptr;
    size_t room_ = 0;  // of ready_
    io_uring ring_{};
    Op nobody_;
    ProgressThread progress_thread_{*this};
};

}  // namespace tcpqp::stock
