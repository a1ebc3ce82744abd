// SPDX-License-Identifier: BSD-3-Clause
#include "completion_queue.hpp"

#include <rdma/ib_user_verbs.h>
#include <cstring>
#include <new>

#include "endian.hpp"
#include "ring_pages.hpp"

namespace nupa {

namespace {

// So no element crosses a page.
static_assert(kRingElementsAt % NUPA_CQE_BYTES == 0 && kRingPageBytes % NUPA_CQE_BYTES == 0);
static_assert(sizeof(ib_uverbs_wc) <= NUPA_CQE_BYTES);

bool sane(const nupa_cmd_cq& cmd) noexcept {
    if (cmd.mask == 0 || (cmd.mask & (cmd.mask + 1)) != 0 || cmd.pages > NUPA_CQ_PAGES_MAX ||
        cmd.ctl_addr % alignof(nupa_cq_ctl) != 0 || cmd.flags & ~NUPA_CQ_F_WAITING || cmd.reserved)
        return false;
    const std::uint64_t bytes = kRingElementsAt + (std::uint64_t{cmd.mask} + 1) * NUPA_CQE_BYTES;
    return bytes <= std::uint64_t{cmd.pages} * kRingPageBytes;
}

std::uint32_t* word(std::byte* at) noexcept { return reinterpret_cast<std::uint32_t*>(at); }

}  // namespace

nupa_admin_status CompletionQueue::init(const HostMemory& memory, const nupa_cmd_cq& cmd) noexcept
    try {
    if (!sane(cmd))
        return NUPA_E_INVALID;
    std::byte* ctl = memory.at(cmd.ctl_addr, sizeof(nupa_cq_ctl));
    if (!ctl)
        return NUPA_E_ADDRESS;
    if (const auto status = ring_pages(memory, cmd.table_addr, cmd.pages, pages_);
        status != NUPA_OK)
        return status;
    mask_ = cmd.mask;
    says_waiting_ = cmd.flags & NUPA_CQ_F_WAITING;
    ctl_ = reinterpret_cast<nupa_cq_ctl*>(ctl);
    return NUPA_OK;
} catch (const std::bad_alloc&) {
    return NUPA_E_NOSPACE;
}

std::uint32_t CompletionQueue::room() const noexcept {
    const std::uint32_t prod = __atomic_load_n(&ctl_->prod, __ATOMIC_RELAXED);
    const std::uint32_t cons = load_acquire32(pages_[0] + kRingConsumerAt);  // the application's
    return mask_ - ((prod - cons) & mask_);
}

void CompletionQueue::write(std::uint32_t place, const ib_uverbs_wc& wc) noexcept {
    const std::uint32_t prod = __atomic_load_n(&ctl_->prod, __ATOMIC_RELAXED);
    const std::size_t at = kRingElementsAt + std::size_t{(prod + place) & mask_} * NUPA_CQE_BYTES;
    std::memcpy(pages_[at / kRingPageBytes] + at % kRingPageBytes, &wc, sizeof wc);
}

// The host takes ctl's index for what the application can see, so it comes behind the ring's.
void CompletionQueue::give(std::uint32_t count) noexcept {
    const std::uint32_t prod = __atomic_load_n(&ctl_->prod, __ATOMIC_RELAXED) + count;
    if (count) {
        __atomic_store_n(word(pages_[0] + kRingProducerAt), prod & mask_, __ATOMIC_RELEASE);
        __atomic_store_n(&ctl_->prod, prod, __ATOMIC_RELEASE);
    }
    disown(ctl_->owner);
}

bool CompletionQueue::may_be_waited_for() const noexcept {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);  // the ring before this look
    return !says_waiting_ || is_waited_for();
}

bool CompletionQueue::wake() noexcept {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);  // the ring before this look
    return is_waited_for() && __atomic_exchange_n(&ctl_->waiting, 0, __ATOMIC_SEQ_CST) != 0;
}

}  // namespace nupa
