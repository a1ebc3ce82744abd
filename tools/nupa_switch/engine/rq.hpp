// SPDX-License-Identifier: BSD-3-Clause
// The application's receive queue, read in place (rxe user ABI).
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "host_memory.hpp"
#include "limits.hpp"

namespace nupa {

struct RecvSge {
    std::uint64_t addr;
    std::uint32_t length;
    std::uint32_t lkey;
};
static_assert(sizeof(RecvSge) == 16);

// A receive WQE, copied once.
struct RecvWqe {
    std::uint32_t num_sge = 0;
    std::array<RecvSge, NUPA_SGE_MAX> sge;
};

class ReceiveQueue {
public:
    // Copies and checks the page table.  With NUPA_QP_F_NO_RQ, and for a
    // stream, nothing is ever posted.
    nupa_admin_status init(const HostMemory& memory, const nupa_cmd_qp& cmd) noexcept;

    // Is a receive posted for @msn that the host has not completed?  Either
    // index being stale can only make the answer "no".
    bool posted(std::uint16_t msn) const noexcept;
    // The WQE of @msn.  False: its SGE count is out of range.
    bool read(std::uint16_t msn, RecvWqe& wqe) const noexcept;
    // What the application calls it.
    std::uint64_t wr_id(std::uint16_t msn) const noexcept;
    // The first @completed were used: their slots are the application's again.  Only in turn.
    void consumed(std::uint32_t completed) const noexcept;

private:
    std::size_t element(std::uint16_t msn) const noexcept;  // where it is in the ring
    void copy(std::size_t offset, void* to, std::size_t bytes) const noexcept;

    std::vector<std::byte*> pages_;
    const std::byte* shadow_ = nullptr;
    std::uint32_t mask_ = 0;
    std::uint32_t base_ = 0;
    std::uint16_t sge_max_ = 0;
    std::uint8_t log2_bytes_ = 0;
};

}  // namespace nupa
