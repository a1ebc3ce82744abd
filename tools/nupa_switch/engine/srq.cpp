// SPDX-License-Identifier: BSD-3-Clause
#include "srq.hpp"

#include <algorithm>
#include <iterator>

namespace nupa {

nupa_admin_status SharedReceiveQueue::init(const HostMemory& memory,
                                           const nupa_cmd_srq& cmd) noexcept {
    if (cmd.ctl_addr % alignof(nupa_srq_ctl) != 0 ||
        std::any_of(std::begin(cmd.reserved), std::end(cmd.reserved), [](auto b) { return b; }))
        return NUPA_E_INVALID;
    std::byte* ctl = memory.at(cmd.ctl_addr, sizeof(nupa_srq_ctl));
    if (!ctl)
        return NUPA_E_ADDRESS;
    ctl_ = reinterpret_cast<nupa_srq_ctl*>(ctl);
    return ring_.init(memory, {cmd.table_addr, cmd.pages, cmd.mask, cmd.sge_max, cmd.log2_bytes});
}

std::uint32_t SharedReceiveQueue::index() const noexcept {
    return __atomic_load_n(&ctl_->index, __ATOMIC_RELAXED);
}

bool SharedReceiveQueue::take(std::uint32_t count) noexcept {
    if (!own(ctl_->owner))
        return false;
    // A lie makes the switch read what was never posted: memory that its application may write.
    const bool posted = ((ring_.producer() - index()) & ring_.mask()) >= count;
    if (!posted)
        give(0);
    return posted;
}

// The host takes ctl's index for what is used, so it comes before the ring's: the application may
// post to a slot at once.
void SharedReceiveQueue::give(std::uint32_t count) noexcept {
    if (count) {
        const std::uint32_t next = (index() + count) & ring_.mask();
        __atomic_store_n(&ctl_->index, next, __ATOMIC_RELEASE);
        ring_.consumed(next);
    }
    disown(ctl_->owner);
}

}  // namespace nupa
