// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/option/option.hpp"

#include <tcp_qp/tcp_bth_operands.h>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "userspace/base/limits.hpp"

namespace tcpqp::stock {

std::unique_ptr<Option> Option::open(int socket, uint32_t& reason) {
    std::unique_ptr<Slot> slot = Slot::open(socket, reason);
    return slot ? std::make_unique<Option>(std::move(slot), socket) : nullptr;
}

Option::Option(std::unique_ptr<Slot> slot, int socket) noexcept
    : slot_(std::move(slot)),
      tx_(slot_->shared(), socket, slot_->tx_seq()),
      rx_(slot_->shared(), slot_->rx_seq()) {}

uint16_t Option::limit() const noexcept {
    return static_cast<uint16_t>(rx_.msn() + kCreditMessages);
}

void Option::announce_hello() noexcept {
    advertised_ = limit();
    tx_.announce({0, kFrameBytes, tcp_bth_aeth_credits(advertised_), control_msn_++,
                  TCP_BTH_OP_ACKNOWLEDGE, TCP_BTH_F_RTR});
}

// Stock ends say so too, by an ACKNOWLEDGE of their own, which is seen first.
bool Option::module_said_rtr() const noexcept {
    const tcpqp_bpf_slot& s = slot_->shared();
    const uint32_t flags = __atomic_load_n(&s.peer_flags, __ATOMIC_ACQUIRE);
    return (flags & TCP_BTH_F_RTR) != 0 && __atomic_load_n(&s.peer_is_stock, __ATOMIC_RELAXED) == 0;
}

bool Option::module_is_ready() noexcept {
    if (module_said_rtr())
        return true;
    slot_->await(TCPQP_BPF_AWAITS_PEER);
    return module_said_rtr();
}

void Option::begin(bool peer_is_stock) noexcept {
    peer_is_stock_ = peer_is_stock;
    rtr_owed_ = !peer_is_stock;  // a hello is acknowledged by ours
    if (peer_is_stock)
        rx_.skip_hello(kFrameBytes);
}

bool Option::has_credit(uint16_t msn) const noexcept {
    const tcpqp_bpf_slot& s = slot_->shared();
    const bool known = __atomic_load_n(&s.peer_limit_known, __ATOMIC_ACQUIRE) != 0;
    if (!known && !peer_is_stock_)
        return true;
    // a stock end's hello may have come before we were admitted, but we know what it says
    const auto limit = known
                           ? static_cast<uint16_t>(__atomic_load_n(&s.peer_limit, __ATOMIC_RELAXED))
                           : kCreditMessages;
    return static_cast<int16_t>(limit - msn) > 0;
}

bool Option::sees_credit(uint16_t msn) noexcept {
    if (has_credit(msn))
        return true;
    slot_->await(TCPQP_BPF_AWAITS_PEER);
    return has_credit(msn);
}

// Who has sent all it wants to send must not be sent anything: its TCP would answer what comes
// after the close by a reset, and forget what is still to be repeated.  So a stock end gives
// credit only when asked, and asks only for a message that waits.
bool Option::asks() const noexcept {
    return starved_ && !asked_ && static_cast<int32_t>(requests_ - rx_.answers()) < kAnswersUnread;
}

// A module's credits are hints, on ACKs that may be lost: one message goes all the
// same, as from another module, at first and then now and again.  A stock end's are
// messages, and the bound of what it can keep.
bool Option::may_probe(uint16_t msn) noexcept {
    if (peer_is_stock_)
        return false;
    for_credit_.begin(kProbe);
    return msn == 0 || for_credit_.over();
}

// Some ACKs come without a wakeup: a stock end's, those that have SACK.
bool Option::has_room() noexcept {
    bool room = tx_.has_room();
    if (!room) {
        slot_->await(TCPQP_BPF_AWAITS_ACK);
        room = tx_.has_room_by_wakeup();
    }
    if (room) {
        for_room_.end();
        return true;
    }
    for_credit_.end();
    if (for_room_.over())
        for_room_.lengthen(kRoomPauseMax);
    for_room_.begin(kRoomPause);
    return false;
}

bool Option::may_send(uint16_t msn) noexcept {
    if (!has_room())
        return false;
    if (!sees_credit(msn) && !may_probe(msn)) {
        starved_ = peer_is_stock_;
        return false;
    }
    starved_ = asked_ = false;
    for_credit_.end();
    return true;
}

void Option::announce(uint16_t msn, const tcpqp_work& work) noexcept {
    const bool imm = (work.flags & TCPQP_F_IMM) != 0;
    const int opcode = imm ? TCP_BTH_OP_SEND_ONLY_IMM : TCP_BTH_OP_SEND_ONLY;
    tx_.announce({0, work.length, imm ? work.imm : 0, msn, static_cast<uint8_t>(opcode), 0});
}

// A module's TCP reads what comes at any time, so it is given credit unasked.
bool Option::owes_credit() const noexcept {
    if (peer_is_stock_)
        return rx_.requested();
    return rtr_owed_ || static_cast<int16_t>(advertised_ - rx_.msn()) <= 0;
}

void Option::announce_control() noexcept {
    uint8_t flags = rtr_owed_ ? TCP_BTH_F_RTR | TCP_BTH_F_RTR_ACK : 0;
    if (owes_credit()) {
        advertised_ = limit();
        rtr_owed_ = false;
        rx_.answered();
    } else {
        flags = TCP_BTH_F_MORE;
        asked_ = true;
        requests_++;
    }
    tx_.announce(
        {0, 0, tcp_bth_aeth_credits(advertised_), control_msn_++, TCP_BTH_OP_ACKNOWLEDGE, flags});
}

bool Option::announce_terminate(const tcpqp_bpf_message& failed, std::byte* operands) noexcept {
    if (!tx_.has_room())
        return false;
    const tcp_bth_terminate why{failed.seq, TCP_BTH_NAK_INVALID_REQUEST, failed.opcode, failed.msn};
    tcp_bth_put_terminate(reinterpret_cast<uint8_t*>(operands), &why);
    tx_.announce({0, TCP_BTH_TERMINATE_BYTES, 0, 0, TCP_BTH_OP_TERMINATE, 0});
    return true;
}

Framing agree(const Frame& ours, const Frame& peers) noexcept {
    const bool both = ours.can_option && peers.can_option;
    const bool wanted = ours.wants_option || peers.wants_option;
    if (wanted && both)
        return Framing::kOption;
    return ours.wants_option ? Framing::kNone : Framing::kStream;
}

bool framing_from_environment(Wish& wish) noexcept {
    const char* word = ::secure_getenv("TCPQP_FRAMING");
    const std::string_view w = word != nullptr ? word : "";
    wish = w == "stream" ? Wish::kStream : w == "option" ? Wish::kOption : Wish::kAny;
    return wish != Wish::kAny || w.empty() || w == "auto";
}

}  // namespace tcpqp::stock
