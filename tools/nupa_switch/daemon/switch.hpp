// SPDX-License-Identifier: BSD-3-Clause
// The daemon: one thread, one epoll, all ports.
#pragma once

#include <memory>
#include <vector>

#include "control/control_commands.hpp"
#include "control/control_server.hpp"
#include "event/epoll.hpp"
#include "event/heartbeat.hpp"
#include "event/spare_time.hpp"
#include "fabric/fabric.hpp"
#include "options.hpp"

namespace nupa::daemon {

class Switch final : private EventHandler {
public:
    // Every port listens when it returns; throws std::exception with what to do.
    explicit Switch(const Options& options);
    // Serves until SIGTERM or SIGINT.
    void run();

private:
    enum What : uint32_t { kSignal, kTimer };

    void handle(uint32_t what, uint32_t events) override;
    bool work() noexcept;
    bool beat() noexcept;
    bool watches() noexcept;

    Epoll epoll_;
    Fd signals_;
    Heartbeat heartbeat_;
    SpareTime spare_time_;
    Fabric fabric_;
    std::vector<std::unique_ptr<Port>> ports_;
    ControlCommands commands_;
    ControlServer control_;
    bool timer_due_ = false;
    bool stopping_ = false;
};

}  // namespace nupa::daemon
