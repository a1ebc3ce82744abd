// SPDX-License-Identifier: BSD-3-Clause
#include "rq.hpp"

#include "endian.hpp"

namespace nupa {

nupa_admin_status ReceiveQueue::init(const HostMemory& memory, const nupa_cmd_qp& cmd) noexcept {
    if (cmd.flags & (NUPA_QP_F_NO_RQ | NUPA_QP_F_SRQ | NUPA_QP_F_STREAM))
        return NUPA_OK;
    if (cmd.shadow_addr % alignof(nupa_qp_shadow) != 0)
        return NUPA_E_INVALID;
    shadow_ = memory.at(cmd.shadow_addr, offsetof(nupa_qp_shadow, sends));
    if (!shadow_)
        return NUPA_E_ADDRESS;
    base_ = cmd.rq_base;
    return ring_.init(
        memory, {cmd.rq_table_addr, cmd.rq_pages, cmd.rq_mask, cmd.rq_sge_max, cmd.rq_log2_bytes});
}

bool ReceiveQueue::posted(std::uint16_t msn) const noexcept {
    if (ring_.empty())
        return false;
    const std::uint32_t completed = load_acquire32(shadow_);  // before the producer index
    const std::uint32_t producer = ring_.producer();
    const std::uint16_t ahead = static_cast<std::uint16_t>(msn - completed);
    return ahead < ((producer - base_ - completed) & ring_.mask());
}

}  // namespace nupa
