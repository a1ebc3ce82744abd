// SPDX-License-Identifier: BSD-3-Clause
// A switch with enabled ports that have one or more queue pairs each: where most tests begin.
#pragma once

#include <gtest/gtest.h>

#include "daemon_process.hpp"
#include "frames.hpp"

namespace nupa::testing {

inline constexpr uint32_t kModeAll = NUPA_RX_MODE_CSUM | NUPA_RX_MODE_GRO;

struct Ports {
    explicit Ports(unsigned count, uint32_t mode = kModeAll, const QueueShape& shape = {},
                   unsigned queues = 1, uint64_t ram_bytes = 64 << 20, unsigned unplugged = 0)
        : daemon(count + unplugged) {
        for (unsigned i = 0; i < count; i++) {
            ports.push_back(daemon.plug(i, ram_bytes));
            ports[i]->enable();
            for (unsigned q = 0; q < queues; q++)
                ports[i]->create_queues(q, shape);
            ports[i]->set_rx_mode(mode, ports[i]->mac(), 9000);
        }
    }
    FakePort& operator[](unsigned i) { return *ports[i]; }
    // A frame from port @from to port @to.
    TcpFrame frame(unsigned from, unsigned to) {
        TcpFrame f;
        f.src = ports[from]->mac();
        f.dst = ports[to]->mac();
        f.saddr = 0x0a000001 + from;
        f.daddr = 0x0a000001 + to;
        return f;
    }
    uint64_t stat(unsigned port, nupa_stat which) { return ports[port]->stats()[which]; }

    DaemonProcess daemon;
    std::vector<std::unique_ptr<FakePort>> ports;
};

}  // namespace nupa::testing
