// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/workers.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "base/blocked_signals.hpp"
#include "nccl/plugin/environment.hpp"
#include "nccl/plugin/lane.hpp"
#include "nccl/plugin/limits.hpp"
#include "nccl/plugin/log.hpp"

namespace tcpqp::nccl {
namespace {

constexpr unsigned long kTimerSlackNs = 5'000;  // of a nap; Linux's is as long as a short nap

using Clock = std::chrono::steady_clock;

unsigned processors() noexcept {
    cpu_set_t set;
    CPU_ZERO(&set);
    return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set))
                                                          : std::thread::hardware_concurrency();
}

int64_t us_since(Clock::time_point then) noexcept {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - then).count();
}

}  // namespace

unsigned workers_wanted() noexcept {
    const unsigned ours = std::min(processors() / kProcessorsPerWorker, kWorkersDefaultMax);
    return static_cast<unsigned>(
        number_from_environment("TCPQP_THREADS", 0, kWorkersMax, static_cast<int>(ours)));
}

std::shared_ptr<Workers> Workers::get() {
    static std::mutex lock;
    static std::weak_ptr<Workers> all;
    const std::lock_guard guard(lock);
    if (auto there = all.lock())
        return there;
    const unsigned count = workers_wanted();
    if (count == 0)
        return nullptr;
    auto made = std::make_shared<Workers>(count);
    info("%u threads copy messages of %zu KiB and more (TCPQP_THREADS)", count, kLongBytes / 1024);
    all = made;
    return made;
}

Workers::Workers(unsigned count) {
    for (unsigned i = 0; i < count; i++)
        workers_.push_back(std::make_unique<Worker>());
}

Workers::Worker* Workers::add(Lane& lane) {
    const std::lock_guard guard(lock_);
    Worker* idlest = workers_.front().get();
    for (const auto& worker : workers_)
        if (worker->lanes_.size() < idlest->lanes_.size())
            idlest = worker.get();
    idlest->visit([&](std::vector<Lane*>& lanes) { lanes.push_back(&lane); });
    return idlest;
}

void Workers::remove(Worker& worker, Lane& lane) noexcept {
    const std::lock_guard guard(lock_);
    worker.visit([&](std::vector<Lane*>& lanes) { std::erase(lanes, &lane); });
}

Workers::Worker::Worker() {
    const BlockedSignals blocked;  // of the thread for good: they are the application's
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "tcpqp-nccl");
}

Workers::Worker::~Worker() {
    {
        const std::lock_guard guard(lock_);
        stop_ = true;
    }
    called_.notify_one();
    thread_.join();
}

// The lane was handed over before: a worker that falls asleep looks once more after it said so.
void Workers::Worker::wake() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!asleep_.load(std::memory_order_relaxed))
        return;
    {
        const std::lock_guard guard(lock_);
        was_called_ = true;
    }
    called_.notify_one();
}

bool Workers::Worker::step_all(bool& any_handed) noexcept {
    while (visitors_.load(std::memory_order_relaxed) != 0)
        ::sched_yield();
    const std::lock_guard guard(lanes_lock_);
    bool worked = false;
    any_handed = false;
    for (Lane* lane : lanes_)
        if (lane->is_workers()) {
            any_handed = true;
            worked |= lane->step();
        }
    return worked;
}

void Workers::Worker::sleep(bool any_handed, int64_t idle_us) noexcept {
    const auto called = [this] { return was_called_ || stop_; };
    std::unique_lock guard(lock_);
    if (!any_handed)
        called_.wait(guard, called);
    else
        called_.wait_for(guard, std::chrono::microseconds(std::min(idle_us / 8, kWorkerNapMaxUs)),
                         called);
    was_called_ = false;
}

void Workers::Worker::run() noexcept {
    ::prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
    auto worked_at = Clock::now();
    for (;;) {
        bool any_handed = false;
        if (step_all(any_handed)) {
            worked_at = Clock::now();
            continue;
        }
        const int64_t idle_us = us_since(worked_at);
        if (idle_us < kWorkerSpinUs) {
            ::sched_yield();
            continue;
        }
        asleep_.store(true, std::memory_order_seq_cst);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (!step_all(any_handed))
            sleep(any_handed, idle_us);
        else
            worked_at = Clock::now();
        asleep_.store(false, std::memory_order_relaxed);
        const std::lock_guard guard(lock_);
        if (stop_)
            return;
    }
}

}  // namespace tcpqp::nccl
