// SPDX-License-Identifier: BSD-3-Clause
// What the windows of all ports share of the pool.
#pragma once

#include <cstdint>
#include <map>

#include "engine/leases.hpp"

namespace nupa::daemon {

struct SharedPool {
    // @id: as hosts are told it, random.
    SharedPool(uint64_t bytes, uint64_t id) : leases(bytes), id(id) {}

    Leases leases;
    const uint64_t id;
    std::map<Leases::Owner, int> files;  // of the windows that are plugged in
    uint64_t handovers = 0;              // leases that changed hands with what was in them
    uint64_t handover_bytes = 0;
};

}  // namespace nupa::daemon
