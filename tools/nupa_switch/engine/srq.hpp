// SPDX-License-Identifier: BSD-3-Clause
// A shared receive queue that its host and the switch take from (struct nupa_cmd_srq).
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>

#include "host_memory.hpp"
#include "queue_table.hpp"
#include "wqe_ring.hpp"

namespace nupa {

class SharedReceiveQueue : public HostQueue {
public:
    using Command = nupa_cmd_srq;
    // Copies and checks the page table.
    nupa_admin_status init(const HostMemory& memory, const nupa_cmd_srq& cmd) noexcept;

    // Becomes the owner, if @count receives are posted and the host is not it.  Never waits.
    bool take(std::uint32_t count) noexcept;
    // The rest only between take() and give().  The one that is @place behind the next; below
    // take()'s count.
    bool read(std::uint32_t place, RecvWqe& wqe) const noexcept {
        return ring_.read(index() + place, wqe);
    }
    std::uint64_t wr_id(std::uint32_t place) const noexcept { return ring_.wr_id(index() + place); }
    // The next @count were used, and others may be the owner.
    void give(std::uint32_t count) noexcept;

private:
    std::uint32_t index() const noexcept;

    WqeRing ring_;
    nupa_srq_ctl* ctl_ = nullptr;
};

using SrqTable = QueueTable<SharedReceiveQueue>;

}  // namespace nupa
