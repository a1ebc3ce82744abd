// SPDX-License-Identifier: BSD-3-Clause
// Memory of a host's accelerators, where that host has it.  The operator says which files a port
// may have; the host says where in its own address space they lie.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/host_memory.hpp"
#include "ivshmem/mapping.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

class Windows {
public:
    explicit Windows(std::vector<std::string> files) : files_(std::move(files)) {}

    nupa_admin_status set(HostMemory& memory, uint32_t number, const nupa_cmd_window& cmd) noexcept;
    nupa_admin_status clear(HostMemory& memory, uint32_t number) noexcept;
    // All windows; the files are mapped no more: nothing may have pointers into them.
    void reset(HostMemory& memory) noexcept;

private:
    struct Backing {
        uint64_t id;
        Mapping map;
    };
    [[nodiscard]] const Backing* find(uint64_t id) noexcept;

    std::vector<std::string> files_;
    std::vector<Backing> backings_;  // mapped since the last reset
    std::array<std::optional<uint64_t>, NUPA_WINDOWS_MAX> bases_;
};

}  // namespace nupa::daemon
