// SPDX-License-Identifier: BSD-3-Clause
#include "shadow.hpp"

#include "disorder.hpp"

namespace nupa {

nupa_admin_status Shadow::init(const HostMemory& memory, const nupa_cmd_qp& cmd) noexcept {
    shadow_ = nullptr;
    if (!(cmd.flags & NUPA_QP_F_SHADOW))
        return NUPA_OK;
    if (cmd.shadow_addr % alignof(nupa_qp_shadow) != 0)
        return NUPA_E_INVALID;
    const std::byte* at = memory.at(cmd.shadow_addr, offsetof(nupa_qp_shadow, sends));
    if (!at)
        return NUPA_E_ADDRESS;
    memory_ = &memory;
    shadow_ = reinterpret_cast<const nupa_qp_shadow*>(at);
    return NUPA_OK;
}

bool Shadow::consumed(std::uint32_t seq) const noexcept {
    return shadow_ && !seq_after(seq, __atomic_load_n(&shadow_->consumed, __ATOMIC_ACQUIRE));
}

const nupa_qp_reads* Shadow::reads() const noexcept {
    if (!shadow_)
        return nullptr;
    const std::uint64_t addr = __atomic_load_n(&shadow_->reads_addr, __ATOMIC_ACQUIRE);
    if (!addr || addr % alignof(nupa_qp_reads) != 0)
        return nullptr;
    return reinterpret_cast<const nupa_qp_reads*>(memory_->at(addr, sizeof(nupa_qp_reads)));
}

// The host writes `valid` after the rest and clears it before it uses the slot
// again: reading it on both sides proves that what lies between belongs to @msn.
bool Shadow::waits(std::uint16_t msn, std::uint64_t va, std::uint32_t key,
                   std::uint32_t length) const noexcept {
    const nupa_qp_reads* all = reads();
    if (!all)
        return false;
    const nupa_qp_read& slot = all->read[msn % NUPA_READS_MAX];
    const std::uint32_t valid = NUPA_READ_VALID | msn;
    if (__atomic_load_n(&slot.valid, __ATOMIC_ACQUIRE) != valid)
        return false;
    const bool same = __atomic_load_n(&slot.va, __ATOMIC_RELAXED) == va &&
                      __atomic_load_n(&slot.key, __ATOMIC_RELAXED) == key &&
                      __atomic_load_n(&slot.length, __ATOMIC_RELAXED) == length;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return same && __atomic_load_n(&slot.valid, __ATOMIC_RELAXED) == valid;
}

}  // namespace nupa
