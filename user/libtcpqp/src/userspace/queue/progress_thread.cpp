// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/queue/progress_thread.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <new>
#include <system_error>
#include <utility>

#include "base/blocked_signals.hpp"
#include "userspace/base/limits.hpp"
#include "userspace/queue/cq.hpp"
#include "userspace/queue/qp.hpp"

namespace tcpqp::stock {

void ProgressThread::stop() noexcept {
    if (!thread_.joinable())
        return;
    {
        const std::lock_guard guard(cq_.lock());
        stop_ = true;
        wake_.notify_one();
        kick();
    }
    thread_.join();
}

void ProgressThread::watch() noexcept {
    if (!thread_.joinable())
        start();
    if (!awake_)
        wake_.notify_one();
    awake_ = called_ = true;
}

void ProgressThread::kick() noexcept {
    if (polling_)
        ::eventfd_write(event_.get(), 1);
}

// Without threads to be had the application's own calls must do; the next one tries again.
void ProgressThread::start() noexcept {
    const BlockedSignals blocked;  // of the thread for good: they are the application's
    try {
        if (!event_)
            event_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (event_)
            thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
    }
}

// Never waits for the lock: that would cost whoever has it a wake-up at each unlock, and it
// is in a call, so can do what is to be done itself.
void ProgressThread::nap(Held& lock) noexcept {
    lock.unlock();
    for (;;) {
        std::this_thread::sleep_for(kProgressGrace);
        if (lock.try_lock())
            return;
        cq_.ask_to_send_more();
    }
}

// An application whose socket is full time and again would wake it each time.
void ProgressThread::sleep(Held& lock) noexcept {
    if (std::exchange(called_, false))
        return nap(lock);
    awake_ = false;
    wake_.wait(lock);
}

void ProgressThread::run() noexcept {
    pthread_setname_np(pthread_self(), "tcpqp-push");
    Held lock(cq_.lock());
    while (!stop_) {
        if (!cq_.is_left_alone()) {
            sleep(lock);
            continue;
        }
        const uint64_t before = cq_.moves();
        nap(lock);
        if (stop_ || !cq_.is_left_alone())
            continue;
        if (cq_.moves() == before)
            wait_for_sockets(lock);
        if (!stop_)
            cq_.send_more();
    }
}

std::vector<pollfd> ProgressThread::sockets() const {
    std::vector<pollfd> list{{event_.get(), POLLIN, 0}};
    for (const Qp* qp : cq_.send_blocked()) {
        if (qp->awaits() != 0)
            list.push_back({qp->socket(), qp->awaits(), 0});
        if (qp->awaits_wakeup())
            list.push_back({qp->wakeup_fd(), POLLIN, 0});
    }
    return list;
}

void ProgressThread::wait_for_sockets(Held& lock) noexcept {
    std::vector<pollfd> list;
    try {
        list = sockets();
    } catch (const std::bad_alloc&) {
        return;  // after another grace
    }
    const int limit_ms = cq_.look_in_ms();
    polling_ = true;
    lock.unlock();
    ::poll(list.data(), list.size(), limit_ms);
    lock.lock();
    polling_ = false;
    eventfd_t count = 0;
    ::eventfd_read(event_.get(), &count);
}

}  // namespace tcpqp::stock
