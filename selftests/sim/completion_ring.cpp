// SPDX-License-Identifier: BSD-3-Clause
#include "completion_ring.hpp"

#include <utility>

namespace sim {

CompletionRing::CompletionRing(Ram& ram) : ram_(ram), page_(ram.alloc(kPageBytes, kPageBytes)) {
    static_assert(kElementsAt + kEntries * NUPA_CQE_BYTES <= kPageBytes);
    cmd.pages = 1;
    cmd.mask = kEntries - 1;
    cmd.table_addr = ram.alloc(sizeof page_, sizeof page_);
    cmd.ctl_addr = ram.alloc(sizeof(nupa_cq_ctl), 64);
    ram.put(cmd.table_addr, page_);
}

void CompletionRing::polled(std::uint32_t count) noexcept {
    ram_.put<std::uint32_t>(page_ + kConsumerAt, count & cmd.mask);
}

void CompletionRing::post() noexcept {
    count_++;
    ram_.put<std::uint32_t>(page_ + kProducerAt, count_ & cmd.mask);
    ram_.put<std::uint32_t>(cmd.ctl_addr + offsetof(nupa_cq_ctl, prod), count_);
}

void CompletionRing::own(bool host) noexcept {
    owned_ = host;
    ram_.put<std::uint32_t>(cmd.ctl_addr + offsetof(nupa_cq_ctl, owner),
                            host ? NUPA_CQ_OWNER_HOST : NUPA_CQ_OWNER_NONE);
}

void CompletionRing::wait() noexcept {
    waited_for_ = true;
    ram_.put<std::uint32_t>(cmd.ctl_addr + offsetof(nupa_cq_ctl, waiting), 1);
}

void CompletionRing::wake() noexcept {
    waited_for_ = false;
    ram_.put<std::uint32_t>(cmd.ctl_addr + offsetof(nupa_cq_ctl, waiting), 0);
}

bool CompletionRing::woken() noexcept {
    const std::uint64_t at = cmd.ctl_addr + offsetof(nupa_cq_ctl, waiting);
    ram_.accept(at, sizeof(std::uint32_t));
    return std::exchange(waited_for_, false) && ram_.get<std::uint32_t>(at) == 0;
}

ib_uverbs_wc CompletionRing::taken() noexcept {
    const std::uint64_t at =
        page_ + kElementsAt + std::uint64_t{count_ & cmd.mask} * NUPA_CQE_BYTES;
    count_++;
    ram_.accept(at, sizeof(ib_uverbs_wc));
    ram_.accept(page_ + kProducerAt, sizeof(std::uint32_t));
    ram_.accept(cmd.ctl_addr + offsetof(nupa_cq_ctl, prod), sizeof(std::uint32_t));
    return ram_.get<ib_uverbs_wc>(at);
}

bool CompletionRing::agrees() const noexcept {
    return ram_.get<std::uint32_t>(page_ + kProducerAt) == (count_ & cmd.mask) &&
           ram_.get<std::uint32_t>(cmd.ctl_addr + offsetof(nupa_cq_ctl, prod)) == count_ &&
           ram_.get<std::uint32_t>(cmd.ctl_addr + offsetof(nupa_cq_ctl, owner)) ==
               (owned_ ? NUPA_CQ_OWNER_HOST : NUPA_CQ_OWNER_NONE);
}

}  // namespace sim
