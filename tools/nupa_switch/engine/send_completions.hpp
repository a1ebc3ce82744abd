// SPDX-License-Identifier: BSD-3-Clause
// Sends of the host's that the switch completes, when it has completed what acknowledges them
// (struct nupa_qp_sends).
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstdint>

#include "completion_queue.hpp"

namespace nupa {

// Those of one queue pair: made where they are needed, as all that there is lies in host memory.
class SendCompletions {
public:
    SendCompletions(nupa_qp_sends& sends, CompletionQueue& cq, std::uint32_t qpn) noexcept
        : sends_(sends), cq_(cq), qpn_(qpn) {}

    // So many are not completed.
    std::uint32_t under_way() const noexcept;
    // The peer has all before @ack: those are completed, unless the queue is the host's or full.
    // How many.
    std::uint32_t complete(std::uint32_t ack) noexcept;

private:
    nupa_qp_send at(std::uint32_t number) const noexcept;
    // The oldest ones of them that lie before @ack.
    std::uint32_t acknowledged(std::uint32_t ack) const noexcept;
    void write(std::uint32_t count) noexcept;

    nupa_qp_sends& sends_;
    CompletionQueue& cq_;
    std::uint32_t qpn_;
};

}  // namespace nupa
