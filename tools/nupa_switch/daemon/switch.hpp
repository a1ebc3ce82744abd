// SPDX-License-Identifier: BSD-3-Clause
// The daemon: one thread, one epoll, all ports.
#pragma once

#include <memory>
#include <vector>

#include "control/control_commands.hpp"
#include "control/control_server.hpp"
#include "event/event.hpp"
#include "fabric/fabric.hpp"
#include "ports/tap/tap_port.hpp"
#include "ports/vm/vm_port.hpp"

namespace nupa::daemon {

class Switch {
public:
    // Every port listens when it returns; throws std::exception with what to do.
    explicit Switch(const Options& options);
    // Serves until SIGTERM or SIGINT.
    void run();

private:
    void block_signals();
    void add_port(const PortOptions& options, uint16_t id, uint64_t hash_seed);
    void dispatch(const Event& event);
    bool deferred() noexcept;
    void beat() noexcept;

    Epoll epoll_;
    Fd signals_;
    Fd beat_;
    Fabric fabric_;
    std::vector<VmPort*> vm_ports_;  // by port id, null where it is not one
    std::vector<TapPort*> tap_ports_;
    std::vector<std::unique_ptr<Port>> ports_;
    ControlCommands commands_;
    ControlServer control_;
    bool timer_due_ = false;
    bool stopping_ = false;
};

}  // namespace nupa::daemon
