// SPDX-License-Identifier: BSD-3-Clause
#include "switch.hpp"

#include <sched.h>

#include <algorithm>

#include "base/stop_signals.hpp"
#include "event/clock.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {
namespace {

unsigned processors() noexcept {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    // It fails where there are more than a set has room for.
    return ::sched_getaffinity(0, sizeof(mine), &mine) < 0
               ? CPU_SETSIZE
               : static_cast<unsigned>(CPU_COUNT(&mine));
}

}  // namespace

Switch::Switch(const Options& options)
    : signals_(tcpqp::stop_signals()),
      heartbeat_(epoll_, std::chrono::milliseconds(NUPA_BEAT_MS), [this] { return beat(); }),
      spare_time_(processors()),
      commands_(fabric_),
      control_(epoll_, options.control,
               [this](std::string_view line) { return commands_.handle(line); }) {
    epoll_.add(signals_.get(), *this, kSignal);
    epoll_.add(fabric_.timer_fd(), *this, kTimer);
    const PortContext context{epoll_, fabric_, heartbeat_, spare_time_};
    uint16_t id = 0;
    for (const auto& plan : options.ports) {
        ports_.push_back(plan->open(context, id++));
        fabric_.attach(*ports_.back());
    }
}

void Switch::handle(uint32_t what, uint32_t /*events*/) {
    if (what == kSignal)
        stopping_ = true;
    else
        timer_due_ = true;
}

bool Switch::beat() noexcept {
    bool heard = false;
    for (const auto& port : ports_)
        heard = port->beat() || heard;
    return heard;
}

// One bounded turn of every port that has work; true when some is left.
bool Switch::work() noexcept {
    bool more = false;
    for (const auto& port : ports_)
        more = port->work() || more;
    if (timer_due_)
        more = (timer_due_ = fabric_.release_due()) || more;
    return more;
}

bool Switch::watches() noexcept {
    const bool any =
        std::any_of(ports_.begin(), ports_.end(), [](const auto& port) { return port->watches(); });
    if (spare_time_.wants_turn(any))
        spare_time_.turn(any, monotonic_ns(), thread_time_ns);
    return any;
}

void Switch::run() {
    bool more = false;
    bool watching = false;
    while (!stopping_) {
        epoll_.dispatch(!more && !watching);
        more = work();
        watching = watches();
        fabric_.end_turn(!more);
    }
    for (const auto& port : ports_)
        port->shut_down();
}

}  // namespace nupa::daemon
