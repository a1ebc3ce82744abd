// SPDX-License-Identifier: BSD-3-Clause
// The receive queue of one QP: the receive for each number is known beforehand.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>

#include "host_memory.hpp"
#include "wqe_ring.hpp"

namespace nupa {

class ReceiveQueue {
public:
    // Copies and checks the page table.  With NUPA_QP_F_NO_RQ or NUPA_QP_F_SRQ, and for a
    // stream, nothing is ever posted.
    nupa_admin_status init(const HostMemory& memory, const nupa_cmd_qp& cmd) noexcept;

    // Is a receive posted for @msn that the host has not completed?  Either
    // index being stale can only make the answer "no".
    bool posted(std::uint16_t msn) const noexcept;
    // The WQE of @msn.  False: its SGE count is out of range.
    bool read(std::uint16_t msn, RecvWqe& wqe) const noexcept {
        return ring_.read(base_ + msn, wqe);
    }
    // What the application calls it.
    std::uint64_t wr_id(std::uint16_t msn) const noexcept { return ring_.wr_id(base_ + msn); }
    // The first @completed were used: their slots are the application's again.  Only in turn.
    void consumed(std::uint32_t completed) const noexcept { ring_.consumed(base_ + completed); }

private:
    WqeRing ring_;
    const std::byte* shadow_ = nullptr;
    std::uint32_t base_ = 0;
};

}  // namespace nupa
