// SPDX-License-Identifier: BSD-3-Clause
#include "event/heartbeat.hpp"

#include <sys/timerfd.h>

namespace nupa::daemon {

Heartbeat::Heartbeat(Epoll& epoll, std::chrono::milliseconds period, std::function<bool()> beat)
    : period_(period),
      beat_(std::move(beat)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (!timer_)
        throw_errno("timerfd_create");
    epoll.add(timer_.get(), *this);
}

void Heartbeat::start() noexcept {
    using namespace std::chrono;
    const auto next = beat_() ? period_ : milliseconds::zero();
    const auto s = duration_cast<seconds>(next);
    const itimerspec once{
        .it_interval = {},
        .it_value = {.tv_sec = s.count(), .tv_nsec = nanoseconds(next - s).count()}};
    ::timerfd_settime(timer_.get(), 0, &once, nullptr);
}

void Heartbeat::handle(uint32_t /*what*/, uint32_t /*events*/) noexcept {
    uint64_t times = 0;
    [[maybe_unused]] ssize_t n = ::read(timer_.get(), &times, sizeof(times));
    start();
}

}  // namespace nupa::daemon
