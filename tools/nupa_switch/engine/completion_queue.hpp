// SPDX-License-Identifier: BSD-3-Clause
// A completion queue that its host and the switch write to, one at a time (struct nupa_cmd_cq).
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "host_memory.hpp"
#include "queue_table.hpp"

struct ib_uverbs_wc;

namespace nupa {

class CompletionQueue : public HostQueue {
public:
    using Command = nupa_cmd_cq;
    // Copies and checks the page table.
    nupa_admin_status init(const HostMemory& memory, const nupa_cmd_cq& cmd) noexcept;

    // Becomes the owner, unless the host is it.  Never waits.
    bool take() noexcept { return own(ctl_->owner); }
    // The rest only between take() and give().
    std::uint32_t room() const noexcept;  // for so many more
    // The one that is @place behind the next; below room().
    void write(std::uint32_t place, const ib_uverbs_wc& wc) noexcept;
    // The application sees the next @count, which were written, and the host may be the owner.
    void give(std::uint32_t count) noexcept;
    // The host says whether somebody may sleep until a completion comes.
    bool says_waiting() const noexcept { return says_waiting_; }
    bool is_waited_for() const noexcept {
        return __atomic_load_n(&ctl_->waiting, __ATOMIC_RELAXED) != 0;
    }
    // The same after give(): who falls asleep looks once more.
    bool may_be_waited_for() const noexcept;
    // Somebody may, and is to be told now.  After give(): who falls asleep looks once more.
    bool wake() noexcept;

private:
    std::uint32_t mask_ = 0;
    bool says_waiting_ = false;  // NUPA_CQ_F_WAITING
    nupa_cq_ctl* ctl_ = nullptr;
    std::vector<std::byte*> pages_;
};

using CqTable = QueueTable<CompletionQueue>;

}  // namespace nupa
