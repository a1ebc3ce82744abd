// SPDX-License-Identifier: BSD-3-Clause
// Sends what waits (for the socket's room, the peer's hello, credit) when the application
// does not come back: a thread of the cq, started the first time something waits.
//
// It leaves the work to a thread that is in wait(), and to one in another call, which
// it asks once in a millisecond.  When nothing was sent for as long it sleeps until a
// socket is ready or the BPF program wakes it.
#pragma once

#include <condition_variable>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "userspace/base/lock.hpp"

struct pollfd;

namespace tcpqp::stock {

class Cq;

class ProgressThread {
public:
    explicit ProgressThread(Cq& cq) : cq_(cq) {}
    ~ProgressThread() { stop(); }
    ProgressThread(const ProgressThread&) = delete;
    ProgressThread& operator=(const ProgressThread&) = delete;

    // Its thread has ended when it returns: before the ring goes.  Lock not held.
    void stop() noexcept;
    // Both with the cq's lock held.  The cq is left alone: look after it.
    void watch() noexcept;
    // It may sleep on the wrong sockets.
    void kick() noexcept;

private:
    void start() noexcept;
    void run() noexcept;
    void nap(Held& lock) noexcept;
    void sleep(Held& lock) noexcept;
    void wait_for_sockets(Held& lock) noexcept;
    std::vector<pollfd> sockets() const;

    Cq& cq_;
    std::thread thread_;
    std::condition_variable_any wake_;
    Fd event_;
    bool awake_ = false;    // not in wake_.wait() without limit
    bool called_ = false;   // since its last look
    bool polling_ = false;  // in poll(2), lock released
    bool stop_ = false;
};

}  // namespace tcpqp::stock
