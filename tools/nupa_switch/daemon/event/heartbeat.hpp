// SPDX-License-Identifier: BSD-3-Clause
// A beat for all who listen, and none when nobody does: an idle switch sleeps.
#pragma once

#include <chrono>
#include <functional>

#include "event/epoll.hpp"
#include "event/fd.hpp"

namespace nupa::daemon {

class Heartbeat final : public EventHandler {
public:
    // @beat tells everybody; false: nobody listened.
    Heartbeat(Epoll& epoll, std::chrono::milliseconds period, std::function<bool()> beat);
    // Somebody came who may listen: beats at once, and goes on.
    void start() noexcept;
    void handle(uint32_t what, uint32_t events) noexcept override;

private:
    std::chrono::milliseconds period_;
    std::function<bool()> beat_;
    Fd timer_;
};

}  // namespace nupa::daemon
