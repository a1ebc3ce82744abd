// SPDX-License-Identifier: BSD-3-Clause
// Memory of a host's accelerators and its window to the pool, where that host has them.  The
// operator says which files a port may have; the host says where in its own address space they lie.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/host_memory.hpp"
#include "event/client_log.hpp"
#include "ivshmem/mapping.hpp"
#include "ports/vm/pool_window.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

class Windows {
public:
    // log: outlives this object.
    Windows(std::vector<std::string> files, ClientLog& log) : files_(std::move(files)), log_(log) {}
    // In mode cxl; it outlives this object.
    void set_pool(const PoolWindow* pool) noexcept { pool_ = pool; }

    nupa_admin_status set(HostMemory& memory, uint32_t number, const nupa_cmd_window& cmd) noexcept;
    nupa_admin_status clear(HostMemory& memory, uint32_t number) noexcept;
    // All windows; the files are mapped no more: nothing may have pointers into them.
    void reset(HostMemory& memory) noexcept;
    // The pool's alone.
    void clear_pool(HostMemory& memory) noexcept;

private:
    struct Backing {
        uint64_t id;
        Mapping map;
    };
    [[nodiscard]] const Backing* find(uint64_t id) noexcept;
    nupa_admin_status set_pool_at(HostMemory& memory, const nupa_cmd_window& cmd) const noexcept;
    nupa_admin_status set_file_at(HostMemory& memory, const nupa_cmd_window& cmd) noexcept;

    std::vector<std::string> files_;
    ClientLog& log_;
    std::vector<Backing> backings_;  // mapped since the last reset
    std::array<std::optional<uint64_t>, NUPA_WINDOWS_MAX> bases_;
    const PoolWindow* pool_ = nullptr;
    std::optional<uint32_t> pool_number_;  // of its window
};

}  // namespace nupa::daemon
