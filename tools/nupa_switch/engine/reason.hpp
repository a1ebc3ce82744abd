// SPDX-License-Identifier: BSD-3-Clause
// Why a segment was delivered rather than placed: the steps of the decision
// placement checks in order.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstdint>

namespace nupa {

enum class Reason : std::uint8_t {
    kPlaced,
    kPlacedBefore,  // a repeated part of a WRITE that is in memory, before a later one or
                    // completed: nothing is stored, nor copied by the host
    kNoQp,          // no QP context for the flow, or no payload: nothing is counted
    kCsum,          // IP, TCP or ICRC check failed
    kFlags,         // SYN, FIN, RST, URG or a fragment
    kPlain,         // no tcp_bth option
    kBthInvalid,    // the option does not parse
    kWindow,        // beyond the right edge that the host has advertised
    kDuplicate,     // overlaps bytes passed up before
    kPeer,          // not from where the host sends to, or its ACK is of nothing the host sent
    kUnsynced,      // the context has not seen the start of the first message yet
    kDisorder,      // too many holes: delivering until the in-order mark catches up
    kOpcode,        // requests, atomics, acknowledges: always delivered
    kLengths,       // a mixed train whose table of lengths is not known
    kInconsistent,  // another start than the message's other segments named
    kNoReceive,     // no receive posted for its msn, or no receive queue
    kKey,           // no such memory region
    kAccess,        // wrong PD or access right
    kBounds,        // outside the SGE list, the MR or the RETH's length
    kOrder,         // a WRITE before it may not be in memory yet
    kOvertaken,  // no option, and a WRITE behind it is in memory: dropped, lest it be copied over
                 // it
    kCount,
};

// The port counter of a reason; kPlaced, kPlacedBefore and kNoQp have none.
bool reason_stat(Reason reason, nupa_stat& stat) noexcept;
const char* reason_name(Reason reason) noexcept;

}  // namespace nupa
