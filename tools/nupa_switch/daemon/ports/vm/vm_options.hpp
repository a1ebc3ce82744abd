// SPDX-License-Identifier: BSD-3-Clause
// What a virtual machine's port is made of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/port_engine.hpp"
#include "fabric/mac_address.hpp"
#include "ivshmem/index_watch.hpp"
#include "ports/vm/shared_pool.hpp"

namespace nupa::daemon {

inline constexpr unsigned kQueuePairsDefault = 4;

// Are transmit rings looked at without doorbells?
enum class Watch : uint8_t {
    kNever,   // mode pcie
    kAuto,    // while there is a processor to spare
    kAlways,  // whoever else wants one
};

struct VmOptions {
    std::string name;
    std::string socket;                  // where QEMU connects
    std::string ram;                     // guest memory file
    std::vector<std::string> hbm;        // memory files of its accelerators
    std::string pool;                    // where QEMU connects for its window to the pool; mode cxl
    std::shared_ptr<SharedPool> shared;  // of all ports
    uint64_t share_bytes = 0;            // of the pool; 0: an equal part
    MacAddress mac{};                    // zero: one made from the port's number
    unsigned queue_pairs = kQueuePairsDefault;
    Watch watch = Watch::kNever;
    uint64_t watch_max_ns = IndexWatch::kMaxNs;
    PortEngine::Limits limits;
};

}  // namespace nupa::daemon
