// SPDX-License-Identifier: BSD-3-Clause
// A mutex of one word.  Where nobody contends it is one exchange to take and one to
// give back, in line, and none in a process of one thread; a round trip takes it five times.
#pragma once

#include <sys/single_threaded.h>

#include <atomic>
#include <mutex>

namespace tcpqp::stock {

class Lock {
public:
    void lock() noexcept {
        if (!try_lock()) [[unlikely]]
            wait();
    }
    bool try_lock() noexcept {
        if (__libc_single_threaded != 0) [[likely]] {
            word_.store(kHeld, std::memory_order_relaxed);
            return true;
        }
        int before = kFree;
        return word_.compare_exchange_strong(before, kHeld, std::memory_order_acquire,
                                             std::memory_order_relaxed);
    }
    void unlock() noexcept {
        if (__libc_single_threaded != 0) [[likely]]
            word_.store(kFree, std::memory_order_relaxed);
        else if (word_.exchange(kFree, std::memory_order_release) == kWaitedFor)
            wake();
    }

private:
    enum : int { kFree, kHeld, kWaitedFor };

    // Whoever had to wait can't know whether another still does.
    [[gnu::cold, gnu::noinline]] void wait() noexcept {
        while (word_.exchange(kWaitedFor, std::memory_order_acquire) != kFree)
            word_.wait(kWaitedFor, std::memory_order_relaxed);
    }
    [[gnu::cold, gnu::noinline]] void wake() noexcept { word_.notify_one(); }

    std::atomic<int> word_{kFree};
};

using Held = std::unique_lock<Lock>;

}  // namespace tcpqp::stock
