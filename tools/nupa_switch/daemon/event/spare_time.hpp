// SPDX-License-Identifier: BSD-3-Clause
// Is there a processor to spare for an event loop that looks instead of sleeping?
#pragma once

#include <cstdint>

namespace nupa::daemon {

// Judged by what the loop itself had: a thread that looks wants to run all the time.  If it could
// not for more than an eighth of it, others wanted its processor, who may be those that it waits
// for.  Then nobody looks for a while, which doubles each time.  Pure: clocks are the caller's.
class SpareTime {
public:
    static constexpr uint64_t kReadNs = 1'000'000;   // between two looks at the thread's clock
    static constexpr uint64_t kSpanNs = 10'000'000;  // of looking, that is judged together
    static constexpr uint64_t kClosedMinNs = 100'000'000;
    static constexpr uint64_t kClosedMaxNs = 3'200'000'000;

    using Clock = uint64_t (*)() noexcept;

    // @processors: that the thread may run on.  With one, who looks keeps the others from working.
    explicit SpareTime(unsigned processors) noexcept
        : closed_until_ns_(processors < 2 ? UINT64_MAX : 0) {}

    [[nodiscard]] bool any(uint64_t now_ns) const noexcept { return now_ns >= closed_until_ns_; }
    // After each turn of the loop.  @looks: it will not sleep, though there is no work.
    // @thread_ns: time that its thread has run.
    void turn(bool looks, uint64_t now_ns, Clock thread_ns) noexcept;
    // Has turn() anything to do?
    [[nodiscard]] bool wants_turn(bool looks) const noexcept { return looks || looked_; }

private:
    void judge(uint64_t now_ns) noexcept;

    uint64_t closed_until_ns_;
    uint64_t closed_ns_ = kClosedMinNs;  // next time
    uint64_t wanted_ns_ = 0;
    uint64_t ran_ns_ = 0;
    uint64_t last_ns_ = 0;
    uint64_t last_thread_ns_ = 0;
    bool looked_ = false;
};

}  // namespace nupa::daemon
