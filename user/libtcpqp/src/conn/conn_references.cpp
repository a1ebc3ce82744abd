// SPDX-License-Identifier: BSD-3-Clause
// A connection whose messages begin with heads, and may be references.
#include <cerrno>
#include <cstring>

#include "conn/conn.hpp"

namespace {

// There is no room for a lease now; its offer stands.
bool is_for_now(int error) noexcept {
    return error == -EDQUOT || error == -ENOSPC || error == -EMFILE || error == -ENFILE ||
           error == -ENOMEM;
}

}  // namespace

using tcpqp::Head;
using tcpqp::HeadKind;
using tcpqp::kHeadBytes;

// Of each end's first message; what it says is needed before the first long one.
int tcpqp_conn::greet(int timeout_ms) noexcept {
    const tcpqp::Deadline deadline(timeout_ms);
    Lock lock(lock_);
    int error = post_head(buffers_, {HeadKind::kHello, 0, 0, 0, handover_->pool(), 0});
    if (error != 0)
        return error;
    do  // no signal ends it: the peer has our hello, and must not get another
        error = wait_until(lock, deadline.left_ms(), &tcpqp_conn::has_hello);
    while (error == -EINTR);
    if (error == 0 && !handover_->heard())
        error = receive_status_;
    return error == -ETIMEDOUT || error == -EAGAIN ? -EPROTO : error;
}

// The head alone, from the slot that it is in.
int tcpqp_conn::post_head(uint32_t slot, const Head& head) noexcept {
    write_head(head, start_of(slot));
    slots_[slot] = Slot::kSending;
    const int error = post({slot, start_of(slot), uint32_t{kHeadBytes}, 0, 0, 0, mr_of(slot)});
    if (error != 0)
        slots_[slot] = Slot::kFree;
    return error;
}

// One number says it of all.  The peer may wait for it, and the caller need not call again: while
// one is on its way the next goes from a free buffer, and waits only if there is none.
void tcpqp_conn::tell_taken() noexcept {
    if (!handover_ || told_taken_ == handover_->taken())
        return;
    uint32_t slot = buffers_;
    if (slots_[slot] != Slot::kFree) {
        if (free_.empty())
            return;
        slot = free_.back();
        free_.pop_back();
    }
    if (post_head(slot, {HeadKind::kTaken, 0, 0, 0, handover_->taken(), 0}) == 0)
        told_taken_ = handover_->taken();
    else if (slot != buffers_)
        free_.push_back(slot);
}

void tcpqp_conn::lend(tcpqp_view& view) noexcept {
    leases_[view.slot] = handover_->obtain();
    if (leases_[view.slot])
        view.data = leases_[view.slot].data();
}

int tcpqp_conn::start_headed(const tcpqp_view& view) noexcept {
    tcpqp::MappedLease& lease = leases_[view.slot];
    Head head{HeadKind::kInline, view.flags, view.imm, view.length, 0, 0};
    if (lease && handover_->pays(lease, view.length) && handover_->offer(lease, head)) {
        const int error = post_head(view.slot, head);
        if (error == 0) {
            handover_->leave(lease);
        } else {
            handover_->withdraw(lease, head);  // the view is still the caller's
            slots_[view.slot] = Slot::kHeld;
        }
        return error;
    }
    if (lease.is_lost())
        return -EIO;
    if (lease)
        std::memcpy(at(view.slot), lease.data(), view.length);
    write_head(head, start_of(view.slot));
    slots_[view.slot] = Slot::kSending;
    const int error = post({view.slot, start_of(view.slot), uint32_t{kHeadBytes} + view.length, 0,
                            0, 0, mr_of(view.slot)});
    if (error != 0)
        slots_[view.slot] = Slot::kHeld;
    else if (lease)
        handover_->keep(std::move(lease));
    return error;
}

void tcpqp_conn::end_by(int status) noexcept {
    if (receive_status_ == 0)
        receive_status_ = status;
    qp_->cancel();
}

void tcpqp_conn::handle_headed(uint32_t slot, uint32_t length) noexcept {
    const auto head =
        length < kHeadBytes ? std::nullopt : tcpqp::read_head(start_of(slot), length - kHeadBytes);
    const bool is_hello = head && head->kind == HeadKind::kHello;
    slots_[slot] = Slot::kHeld;
    if (!head || is_hello == handover_->heard() ||
        (head->kind == HeadKind::kTaken && !handover_->peer_took(head->number))) {
        end_by(-ENOTCONN);
        return;
    }
    switch (head->kind) {
        case HeadKind::kHello:
            handover_->hear(*head);
            give_back(slot);
            break;
        case HeadKind::kTaken:
            give_back(slot);
            break;
        case HeadKind::kInline:
            push_ready({at(slot), head->length, head->imm, head->flags, slot});
            break;
        case HeadKind::kReference:
            if (head->length > buffer_bytes_)
                end_by(-EMSGSIZE);
            else  // what it names is taken when it is received
                push_ready({nullptr, head->length, head->imm, head->flags, slot});
    }
}

int tcpqp_conn::take_lease(tcpqp_view& view) noexcept {
    const auto head = tcpqp::read_head(start_of(view.slot), 0);
    const int error = head ? handover_->take(*head, leases_[view.slot]) : -EPROTO;
    if (is_for_now(error))
        return error;  // it is the next one still
    if (error != 0) {
        pop_ready();
        give_back(view.slot);
        end_by(-ENOTCONN);
        return -ENOTCONN;
    }
    view.data = leases_[view.slot].data();
    return 0;
}
