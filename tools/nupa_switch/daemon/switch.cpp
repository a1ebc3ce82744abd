// SPDX-License-Identifier: BSD-3-Clause
#include "switch.hpp"

#include <fmt/core.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <csignal>

namespace nupa::daemon {
namespace {

uint64_t random_seed() {
    uint64_t seed = 0;
    if (::getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        throw_errno("getrandom");
    return seed;
}

}  // namespace

Switch::Switch(const Options& options)
    : commands_(fabric_), control_(epoll_, options.control, [this](std::string_view line) {
          return commands_.handle(line);
      }) {
    block_signals();
    beat_ = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!beat_)
        throw_errno("timerfd_create");
    epoll_.add(beat_.get(), {EventKind::kBeat});
    epoll_.add(fabric_.timer_fd(), {EventKind::kTimer});
    uint16_t id = 0;
    for (const PortOptions& port : options.ports)
        add_port(port, id++, random_seed());
}

void Switch::block_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (::sigprocmask(SIG_BLOCK, &set, nullptr) < 0)
        throw_errno("sigprocmask");
    signals_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_)
        throw_errno("signalfd");
    epoll_.add(signals_.get(), {EventKind::kSignal});
}

void Switch::add_port(const PortOptions& options, uint16_t id, uint64_t hash_seed) {
    vm_ports_.push_back(nullptr);
    tap_ports_.push_back(nullptr);
    if (options.kind == PortOptions::Kind::kVm) {
        auto port = std::make_unique<VmPort>(epoll_, fabric_, options, id, hash_seed);
        vm_ports_[id] = port.get();
        ports_.push_back(std::move(port));
    } else {
        auto port = std::make_unique<TapPort>(epoll_, fabric_, options, id);
        tap_ports_[id] = port.get();
        ports_.push_back(std::move(port));
    }
    fabric_.attach(*ports_.back());
}

void Switch::dispatch(const Event& event) {
    const EventRef& ref = event.ref;
    switch (ref.kind) {
        case EventKind::kSignal:
            stopping_ = true;
            break;
        case EventKind::kTimer:
            timer_due_ = true;
            break;
        case EventKind::kBeat:
            beat();
            break;
        case EventKind::kVmListen:
            vm_ports_[ref.port]->accept_client();
            beat();
            break;
        case EventKind::kVmClient:
            vm_ports_[ref.port]->client_event();
            break;
        case EventKind::kVmDoorbell:
            vm_ports_[ref.port]->doorbell(ref.index);
            break;
        case EventKind::kTap:
            tap_ports_[ref.port]->read_frames();
            break;
        case EventKind::kControlListen:
            control_.accept_clients();
            break;
        case EventKind::kControlClient:
            control_.client_ready(ref.index, event.events);
            break;
    }
}

// Every second while somebody is plugged in who may look.
void Switch::beat() noexcept {
    uint64_t times = 0;
    [[maybe_unused]] ssize_t n = ::read(beat_.get(), &times, sizeof(times));
    bool heard = false;
    for (VmPort* port : vm_ports_)
        if (port && port->plugged()) {
            port->beat();
            heard = true;
        }
    const itimerspec next{.it_interval = {},
                          .it_value = {.tv_sec = heard ? NUPA_BEAT_MS / 1000 : 0, .tv_nsec = 0}};
    ::timerfd_settime(beat_.get(), 0, &next, nullptr);
}

// One bounded turn of every port that has work; true when some is left.
bool Switch::deferred() noexcept {
    bool more = false;
    for (VmPort* port : vm_ports_)
        if (port && port->busy())
            more = port->work() || more;
    if (timer_due_)
        more = (timer_due_ = fabric_.release_due()) || more;
    return more;
}

void Switch::run() {
    bool more = false;
    while (!stopping_) {
        for (const Event& event : epoll_.wait(!more))
            dispatch(event);
        more = deferred();
        fabric_.settle(!more);
    }
    for (VmPort* port : vm_ports_)
        if (port)
            port->farewell();
}

}  // namespace nupa::daemon
