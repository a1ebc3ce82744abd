// SPDX-License-Identifier: BSD-3-Clause
// Receives that the switch completes, while it is its turn (struct nupa_qp_shadow).
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <tcp_qp/tcp_bth.h>
#include <cstddef>
#include <cstdint>

#include "completion_queue.hpp"
#include "host_memory.hpp"
#include "rq.hpp"
#include "send_completions.hpp"
#include "srq.hpp"

namespace nupa {

class Completions {
public:
    // Without NUPA_QP_F_COMPLETE nothing is ever completed.
    nupa_admin_status init(const HostMemory& memory, std::uint32_t qpn,
                           const nupa_cmd_qp& cmd) noexcept;
    // @srq: where receives come from, @send_cq: where sends are completed; or nullptr.
    void use(CompletionQueue& cq, SharedReceiveQueue* srq, CompletionQueue* send_cq) noexcept {
        cq_ = &cq, srq_ = srq, send_cq_ = send_cq;
    }
    CompletionQueue* cq() const noexcept { return cq_; }
    SharedReceiveQueue* srq() const noexcept { return srq_; }
    CompletionQueue* send_cq() const noexcept { return send_cq_; }
    // Has the host acknowledged late, and without data, since the last call?
    bool acked_late() noexcept;
    // Does the host say that both ends have room for sends that complete late?
    [[nodiscard]] bool ends_have_room() const noexcept;
    // Does somebody sleep who expects that sends of the host's are completed before any answer?
    bool sleeper_awaits_sends() const noexcept;
    // All before @ack is acknowledged, by what was completed, or alone: so sends may be completed,
    // too.  How many.
    std::uint32_t complete_sends(std::uint32_t ack) noexcept;
    // Then: may somebody sleep until that is so?  @receive: there is one, and who sleeps at its
    // queue is told of that.
    bool send_is_waited_for(bool receive) const noexcept;

    // Is every byte before @seq of messages that were completed, so that the host copies none of
    // them, whatever comes again?  Known only while it is the switch's turn.
    bool finished(std::uint32_t seq) const noexcept;

    // @bytes of payload from @seq on, which @b names, were placed: if they are whole messages and
    // what comes next, they are completed.  How many; 0: they are left to the host.
    std::uint32_t complete(const ReceiveQueue& rq, const tcp_bth& b, std::uint32_t seq,
                           std::uint32_t bytes) noexcept;

    // With an SRQ no receive is a SEND's before it is completed.  So before it is placed: may it
    // be completed then?  If so both queues are taken, with a receive for each message in @bytes.
    bool claim(const tcp_bth& b, std::uint32_t seq, std::uint32_t bytes) noexcept;
    // After claim(), of the same: how many are completed.  Not @placed: none, and the receives are
    // anybody's again.
    std::uint32_t settle(const tcp_bth& b, std::uint32_t seq, std::uint32_t bytes,
                         bool placed) noexcept;

private:
    struct Messages {
        std::uint32_t count = 0, length = 0;  // each is so long; no messages: not whole ones
        std::uint16_t msn = 0;                // of the first
        bool untagged = false;                // each takes a receive
    };
    static Messages messages(const tcp_bth& b, std::uint32_t bytes) noexcept;
    bool newer(const tcp_bth& b) const noexcept;
    // It is busy from begin() on, if that says so, to end().
    bool begin(const tcp_bth& b, std::uint32_t seq, std::uint32_t bytes) noexcept;
    std::uint32_t end(const tcp_bth& b, std::uint32_t done, bool completed) noexcept;
    bool writes() noexcept;
    bool take_queues(const ReceiveQueue* rq) noexcept;
    bool take_receives(const ReceiveQueue* rq) noexcept;
    void tell(const ReceiveQueue* rq, const tcp_bth& b) noexcept;
    SendCompletions sends() const noexcept { return {shadow_->sends, *send_cq_, qpn_}; }

    nupa_qp_shadow* shadow_ = nullptr;
    CompletionQueue* cq_ = nullptr;
    SharedReceiveQueue* srq_ = nullptr;
    CompletionQueue* send_cq_ = nullptr;
    Messages all_;  // of the packet that it is busy with
    std::uint32_t qpn_ = 0;
    std::uint32_t late_ = 0;
    std::uint32_t tsval_ = 0;  // of the last packet that was completed
    bool has_tsval_ = false;
};

}  // namespace nupa
