// SPDX-License-Identifier: BSD-3-Clause
// What the host keeps for the switch to read: how far it is, and which READs
// wait for their responses.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>

#include "host_memory.hpp"

namespace nupa {

class Shadow {
public:
    // Without NUPA_QP_F_SHADOW nothing waits, and nothing is known of how far the host is.
    // @memory outlives it.
    nupa_admin_status init(const HostMemory& memory, const nupa_cmd_qp& cmd) noexcept;

    // Has the host put every byte before @seq where it belongs?
    bool consumed(std::uint32_t seq) const noexcept;
    // Does a READ wait for the response @msn with just this target?
    bool waits(std::uint16_t msn, std::uint64_t va, std::uint32_t key,
               std::uint32_t length) const noexcept;

private:
    // Where they wait; nullptr: nowhere yet, or outside host memory.
    const nupa_qp_reads* reads() const noexcept;

    const HostMemory* memory_ = nullptr;
    const nupa_qp_shadow* shadow_ = nullptr;
};

}  // namespace nupa
