// SPDX-License-Identifier: BSD-3-Clause
#include "switch.hpp"

#include <fmt/core.h>
#include <sys/random.h>
#include <sys/signalfd.h>

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
        case EventKind::kVmListen:
            vm_ports_[ref.port]->accept_client();
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
}

}  // namespace nupa::daemon
