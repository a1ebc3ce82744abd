// SPDX-License-Identifier: BSD-3-Clause
// The placement checks of docs/dataflow.md, "Receive, switch": place or deliver.
#pragma once

#include <tcp_qp/tcp_bth.h>
#include <cstdint>

#include "mr.hpp"
#include "packet.hpp"
#include "qp.hpp"
#include "reason.hpp"

namespace nupa {

struct Decision {
    Reason reason = Reason::kNoQp;
    bool has_qp = false;         // qpn is valid: NUPA_RX_F_QP
    bool has_bth = false;        // bth and bth_at are valid
    bool may_wait = false;       // placed, and TCP need not hear of it at once
    bool quiet = false;          // completed, so that TCP need not hear of it at once
    bool later = false;          // with quiet: it may be heard of with others
    bool wakes = false;          // with quiet: somebody may have slept until it was, in @cq
    std::uint16_t patience = 1;  // with quiet: how many times the shortest time TCP may wait
    bool stream = false;         // the flow is a stream: placed where its post says
    std::uint16_t bth_at = 0;    // offset of the option in Packet::header
    std::uint32_t qpn = 0;
    std::uint32_t completed = 0;  // messages that the host need not complete
    std::uint32_t sends = 0;      // of the host's, that were completed by the acknowledgement
    std::uint32_t cq = 0;
    tcp_bth bth{};
    bool placed() const noexcept {
        return reason == Reason::kPlaced || reason == Reason::kPlacedBefore;
    }
    // As if the network had lost it: TCP sends it again, perhaps with its option.
    bool dropped() const noexcept { return reason == Reason::kOvertaken; }
};

// What @decision on a run says of @part of it.
Decision of_part(Decision decision, const Packet& part) noexcept;

// Decide on one TCP packet of @qp's flow, whose checksum state is known
// (kPartial, kGood or kBad), and when the answer is "place", copy its payload.
// Counts in @qp.stats only.  Never fails.
Decision place(QpContext& qp, const MrTable& mrs, const Packet& packet) noexcept;

}  // namespace nupa
