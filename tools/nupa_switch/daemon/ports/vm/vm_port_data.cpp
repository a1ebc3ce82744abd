// SPDX-License-Identifier: BSD-3-Clause
// VmPort: the data path, from transmit rings and into receive queues.
#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/transmit.hpp"
#include "event/clock.hpp"
#include "ports/vm/vm_port.hpp"

namespace nupa::daemon {

// Every queue that rang, until the turn is over; the rest comes first in the next one.
void VmPort::bursts() noexcept {
    const unsigned first = next_queue_;
    uint64_t end = 0;
    for (unsigned i = 0; i < NUPA_QUEUE_PAIRS_MAX && running_; i++) {
        const unsigned q = (first + i) % NUPA_QUEUE_PAIRS_MAX;
        if (!(pending_ & 2u << q))
            continue;
        const uint64_t now = monotonic_ns();
        if (!end)
            end = now + kTxTurnNs;
        else if (now >= end)
            return;
        next_queue_ = (q + 1) % NUPA_QUEUE_PAIRS_MAX;
        if (tx_[q])
            tx_[q]->watch().begin(now);
        burst(q, end);
    }
}

// Sends a bounded burst of one queue; its doorbell bit stays set when more waits.
void VmPort::burst(unsigned queue, uint64_t end_ns) noexcept {
    std::optional<TxQueue>& tx = tx_[queue];
    watched_ &= ~(2u << queue);
    bool more = tx && transmit(*tx, end_ns);
    // Receivers may refer to this host's memory until here.
    fabric_.flush();
    if (!running_ || !tx) {
        pending_ &= ~(2u << queue);
        return;
    }
    if (tx->ring().publish())
        interrupt(1 + queue);
    if (!more)
        more = wait_for_more(queue);
    if (!more)
        pending_ &= ~(2u << queue);
}

// The ring is empty: it is watched, or its host is asked for a doorbell.  True: it is not empty.
bool VmPort::wait_for_more(unsigned queue) noexcept {
    TxQueue& tx = *tx_[queue];
    if (tx.may_be_watched()) {
        const uint64_t now = monotonic_ns();
        tx.watch().emptied(now);
        if (!tx.watch().over(now) && may_watch(now)) {
            watched_ |= 2u << queue;
            return false;
        }
        tx.watch().armed();
    }
    return tx.ring().rearm();
}

// At each ring that is watched.  What came is served in this turn, within its bounds; a watch that
// is over ends by asking for a doorbell.
void VmPort::look() noexcept {
    const uint64_t now = monotonic_ns();
    const bool may = may_watch(now);
    for (uint32_t left = watched_; left; left &= left - 1) {
        const uint32_t vector = left & -left;
        TxQueue& tx = *tx_[static_cast<unsigned>(std::countr_zero(vector)) - 1];
        const bool ends = !may || tx.watch().over(now);
        if (tx.ring().pending()) {
            stats().add(NUPA_STAT_tx_seen);
            pending_ |= vector;
        } else if (ends) {
            stats().add(NUPA_STAT_tx_watch_ends);
            tx.watch().armed();
            if (tx.ring().rearm())
                pending_ |= vector;
        } else {
            continue;
        }
        watched_ &= ~vector;
    }
}

// True when the budget ended before the ring did.  Some packets are taken before the first of them
// is sent, as many as are there: what is to be looked up for them is on its way into cache then.
bool VmPort::transmit(TxQueue& tx, uint64_t end_ns) noexcept {
    uint32_t bytes = 0, segments = 0;
    for (unsigned packets = 0;
         packets < kTxBurstPackets && bytes < kTxBurstBytes && segments < kTxBurstSegments;) {
        size_t taken = 0;
        TxQueue::Next next = TxQueue::Next::kPacket;
        while (taken < kLookaheadMax && packets < kTxBurstPackets && bytes < kTxBurstBytes &&
               segments < kTxBurstSegments && (next = tx.next()) == TxQueue::Next::kPacket) {
            packets++;
            bytes += tx.context().bytes;
            if (take(packets_[taken], tx))
                segments += packets_[taken++].segments();
        }
        engine_.expect_transmit({packets_.data(), taken});
        fabric_.expect({packets_.data(), taken});
        for (size_t i = 0; i < taken; i++)
            send(packets_[i]);
        if (next == TxQueue::Next::kEmpty)
            return false;
        if (next == TxQueue::Next::kBroken) {
            fabric_.flush();
            fail(tx.reason());
            return false;
        }
        if (packets >= kLookaheadMax && monotonic_ns() >= end_ns)
            return true;
    }
    return true;
}

bool VmPort::take(Packet& packet, const TxQueue& tx) noexcept {
    if (packet_from_tx(packet, tx.context(), tx.buffers()) == TxError::kOk &&
        !(packet.tso && uint32_t{packet.at.header_bytes} + packet.mss > kFrameMaxBytes))
        return true;
    stats().add(NUPA_STAT_tx_drop_invalid);
    return false;
}

void VmPort::send(Packet& packet) noexcept {
    packet.ingress = id();
    fabric_.forward(*this, packet, engine_.transmit(packet, fabric_.port_of(packet)));
    if (packet.owned)
        fabric_.flush();  // before these bytes are freed for another packet
}

bool VmPort::accepts(const Packet& segment) noexcept {
    const uint8_t* dst = segment.header.data();
    if (segment.frame_bytes() > rx_mode_.mtu + kEthernetBytes + kVlanBytes)
        return false;
    if (rx_mode_.flags & NUPA_RX_MODE_PROMISC)
        return true;
    if (!is_multicast(dst))
        return !std::memcmp(dst, rx_mode_.mac, sizeof(rx_mode_.mac));
    return rx_mode_.flags & NUPA_RX_MODE_ALLMULTI || mac_key(dst) == kBroadcastKey;
}

uint32_t VmPort::span(const Packet& burst) noexcept {
    if (!running_ || !accepts(burst))
        return 0;
    RxQueue* rx = rx_[steering_.choose(burst).queue].get();
    const PortEngine::Runs runs = engine_.runs(burst);
    if (!rx || runs == PortEngine::Runs::kNone)
        return 0;
    if (runs == PortEngine::Runs::kDelivered)
        return rx->span(burst, false);
    // Of a stream what is posted, so that a burst is cut where the post ends.
    const uint32_t posted = engine_.placed_run_max(burst) / burst.mss * burst.mss;
    return std::min(rx->span(burst, true), std::max<uint32_t>(posted, burst.mss));
}

void VmPort::expect(std::span<const Packet> packets) noexcept { engine_.expect_receive(packets); }

void VmPort::deliver(Packet& segment) noexcept {
    if (!running_) {
        stats().add(NUPA_STAT_rx_drop_no_queue);
        return;
    }
    if (!accepts(segment)) {
        stats().add(NUPA_STAT_rx_drop_filter);
        return;
    }
    const QueueChoice choice = steering_.choose(segment);
    RxQueue* rx = rx_[choice.queue].get();
    if (!rx) {
        stats().add(NUPA_STAT_rx_drop_no_queue);
        return;
    }
    stats().add(NUPA_STAT_rx_segments, segment.segments());
    if (!took(*rx, rx->room_for(segment), segment.segments()))
        return;
    const Decision decision = engine_.receive(segment);
    if (decision.dropped())
        return;
    if (segment.mss && decision.has_qp && !decision.placed())
        add_parts(*rx, segment, decision, choice);
    else
        add(*rx, segment, decision, choice);
}

// What came of @segments; false: they are gone, and @rx may be, too.
bool VmPort::took(const RxQueue& rx, RxQueue::Result result, uint32_t segments) noexcept {
    if (result == RxQueue::Result::kNoBuffer)
        stats().add(NUPA_STAT_rx_drop_no_buffer, segments);
    if (result == RxQueue::Result::kBroken)
        fail(rx.reason());
    return result == RxQueue::Result::kTaken;
}

void VmPort::add(RxQueue& rx, Packet& segment, const Decision& decision,
                 const QueueChoice& choice) noexcept {
    const uint32_t segments = segment.segments();
    took(rx, rx.add(segment, decision, choice), segments);
}

// A run that was to be placed, and is not, goes up in parts that fit the host's buffers.
void VmPort::add_parts(RxQueue& rx, Packet& run, const Decision& decision,
                       const QueueChoice& choice) noexcept {
    run.tso = true;
    Cutter parts(run, rx.span(run, false));
    while (running_ && parts.next(part_))
        if (took(rx, rx.room_for(part_), part_.segments()))
            add(rx, part_, of_part(decision, part_), choice);
}

// False: the port has failed.
bool VmPort::tell(unsigned queue, RxQueue::Result result) noexcept {
    if (result == RxQueue::Result::kBroken) {
        fail(rx_[queue]->reason());
        return false;
    }
    if (rx_[queue]->publish()) {
        stats().add(NUPA_STAT_rx_interrupts);
        interrupt(1 + queue);
    }
    set_due_ns(std::min(due_ns(), rx_[queue]->due_ns()));
    return true;
}

void VmPort::flush() noexcept {
    const uint64_t now = rx_mode_.hold_us ? monotonic_ns() : 0;
    set_due_ns(kNever);
    for (unsigned q = 0; q < NUPA_QUEUE_PAIRS_MAX && running_; q++)
        if (rx_[q] && !tell(q, rx_[q]->turn(now)))
            return;
}

void VmPort::expire_queue(unsigned queue, uint64_t now_ns) noexcept {
    RxQueue& rx = *rx_[queue];
    uint32_t silent = 0;
    std::optional<RxQueue::Result> done;
    while ((done = rx.expire(now_ns, silent)) == RxQueue::Result::kTaken) {
        if (silent)
            engine_.silent(silent);
        for (const uint32_t qpn : rx.in_vain())
            engine_.quiet_in_vain(qpn);
    }
    tell(queue, done.value_or(RxQueue::Result::kTaken));
}

void VmPort::expire(uint64_t now_ns) noexcept {
    set_due_ns(kNever);
    for (unsigned q = 0; q < NUPA_QUEUE_PAIRS_MAX && running_; q++)
        if (rx_[q])
            expire_queue(q, now_ns);
}

// What the host is about to change may be what a run depends on.
void VmPort::flush_held() noexcept {
    set_due_ns(kNever);
    for (unsigned q = 0; q < NUPA_QUEUE_PAIRS_MAX && running_; q++)
        if (rx_[q] && !tell(q, rx_[q]->flush()))
            return;
}

}  // namespace nupa::daemon
