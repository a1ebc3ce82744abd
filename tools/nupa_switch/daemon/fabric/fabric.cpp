// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/fabric.hpp"

#include <algorithm>

#include "event/clock.hpp"

namespace nupa::daemon {
namespace {

constexpr size_t kCaptureMaxBytes = (64 << 10) + kHeaderMaxBytes;

// What a middlebox or a bad cable does to the segment; false: nothing usable is left of it.
bool damage(Port& to, const Faults& faults, const FaultDecision& fault, Packet& segment) noexcept {
    const auto count_if = [&to](bool done, nupa_stat stat) { to.stats.add(stat, done ? 1 : 0); };
    if (faults.config().copy_ppm)
        count_if(to.options_seen.pass(segment, fault.copy), NUPA_STAT_fault_copy);
    if (fault.mangle)
        count_if(fault_mangle(segment, fault.mangle_where), NUPA_STAT_fault_mangle);
    if (fault.bleach)
        count_if(fault_bleach(segment), NUPA_STAT_fault_bleach);
    count_if(fault.truncate, NUPA_STAT_fault_truncate);
    if (fault.truncate && !fault_truncate(segment, fault.where))
        return false;
    count_if(fault.corrupt, NUPA_STAT_fault_corrupt);
    return !fault.corrupt || fault_corrupt(segment, fault.where);
}

// Does nobody look at the single segments of a burst between sender and receiver?  The copy is then
// what its way through the switch costs, and not a thousand headers.
bool untouched(const Port& from, const Port& to, const Packet& burst, TxRewrite rewrite) noexcept {
    return burst.tso && !rewrite.icrc && !from.pcap && !to.pcap && to.link_up() && !to.impaired();
}

}  // namespace

Fabric::Fabric() : capture_bytes_(kCaptureMaxBytes) {}

void Fabric::attach(Port& port) {
    ports_.push_back(&port);
    dirty_.reserve(ports_.size());
}

uint16_t Fabric::port_of(const Packet& packet) const noexcept {
    const Port* to = destination(packet);
    return to ? to->id() : kNoPort;
}

// Null: everybody but the sender.
Port* Fabric::destination(const Packet& packet) const noexcept {
    const uint8_t* dst = packet.header.data();
    if (is_multicast(dst))
        return nullptr;
    const int port = macs_.find(dst);
    return port == MacTable::kUnknown ? nullptr : ports_[static_cast<size_t>(port)];
}

void Fabric::expect(std::span<const Packet> packets) noexcept {
    while (!packets.empty()) {
        Port* to = destination(packets[0]);
        size_t same = 1;
        while (same < packets.size() && destination(packets[same]) == to)
            same++;
        if (to)
            to->expect(packets.first(same));
        packets = packets.subspan(same);
    }
}

void Fabric::forward(Port& from, const Packet& packet, TxRewrite rewrite) noexcept {
    if (!from.link_up()) {
        from.stats.add(NUPA_STAT_tx_drop_unknown);
        return;
    }
    if (!macs_.learn(packet.header.data() + 6, from.id(), from.kind())) {
        from.stats.add(NUPA_STAT_tx_drop_source);
        return;
    }
    Port* to = destination(packet);
    if (to == &from || ports_.size() < 2) {
        from.stats.add(NUPA_STAT_tx_drop_unknown);
        return;
    }
    from.stats.add(NUPA_STAT_tx_packets);
    if (!to)
        from.stats.add(NUPA_STAT_tx_flood);
    const uint32_t span = to && untouched(from, *to, packet, rewrite) ? to->span(packet) : 0;
    Cutter cutter = span ? Cutter(packet, span) : Cutter(packet, rewrite);
    for (uint32_t cut = 0; cutter.next(segment_); cut++) {
        if (!to && cut == kFloodSegmentsMax) {
            from.stats.add(NUPA_STAT_queue_drop, packet.segments() - cut);
            return;
        }
        from.stats.add(NUPA_STAT_tx_segments, segment_.segments());
        from.stats.add(NUPA_STAT_tx_bytes, segment_.wire_bytes());
        if (from.pcap)
            capture(from, segment_);
        send(from, to, segment_);
    }
}

void Fabric::send(const Port& from, Port* to, Packet& segment) noexcept {
    if (to)
        egress(*to, segment);
    else
        flood(from, segment);
}

void Fabric::flood(const Port& from, const Packet& segment) noexcept {
    for (Port* to : ports_) {
        if (to == &from || !to->link_up())
            continue;
        if (packet_copy(copy_, segment))
            egress(*to, copy_);
        else
            to->stats.add(NUPA_STAT_queue_drop);
    }
}

void Fabric::egress(Port& to, Packet& segment) noexcept {
    if (!to.link_up())
        return;
    if (to.impaired())
        impair(to, segment);
    else
        hand_over(to, segment);
}

void Fabric::impair(Port& to, Packet& segment) noexcept {
    Faults& faults = to.faults_of(segment);
    const FaultDecision fault = faults.decide();
    if (fault.lose) {
        to.stats.add(NUPA_STAT_fault_loss);
        return;
    }
    if (!damage(to, faults, fault, segment))
        return;
    const bool twice = fault.duplicate && packet_copy(duplicate_, segment);
    schedule(to, segment, fault);
    if (twice) {
        to.stats.add(NUPA_STAT_fault_duplicate);
        schedule(to, duplicate_, FaultDecision{});
    }
    held_.passed(to.id());
    while (auto overtaken = held_.take_overtaken())
        hand_over(*ports_[overtaken->port], overtaken->segment);
}

void Fabric::schedule(Port& to, Packet& segment, const FaultDecision& fault) noexcept {
    const uint64_t now = monotonic_ns();
    const LinkVerdict verdict = to.link.admit(now, segment.bytes());
    if (verdict.drop) {
        to.stats.add(NUPA_STAT_queue_drop);
        return;
    }
    if (verdict.mark && segment.mark_ce())
        to.stats.add(NUPA_STAT_ecn_marked);
    const uint64_t due = verdict.depart_ns + fault.delay_ns;
    if (due <= now && !fault.reorder_packets) {
        hand_over(to, segment);
        return;
    }
    // From here on it waits, and the sender gets its buffers back.
    bool kept = segment.own();
    if (kept && fault.reorder_packets)  // it is itself the first that passes
        kept = held_.hold_behind(fault.reorder_packets + 1, now, to.id(), std::move(segment));
    else if (kept)
        kept = held_.hold_until(due, to.id(), std::move(segment));
    if (!kept) {
        to.stats.add(NUPA_STAT_queue_drop);
        return;
    }
    if (fault.reorder_packets)
        to.stats.add(NUPA_STAT_fault_reorder);
    if (fault.delay_ns)
        to.stats.add(NUPA_STAT_fault_delay);
}

void Fabric::hand_over(Port& to, Packet& segment) noexcept {
    if (!to.link_up())
        return;
    if (to.pcap)
        capture(to, segment);
    if (!to.dirty_) {
        to.dirty_ = true;
        dirty_.push_back(&to);
    }
    to.deliver(segment);
}

void Fabric::flush() noexcept {
    for (Port* port : dirty_) {
        port->dirty_ = false;
        port->flush();
    }
    dirty_.clear();
}

bool Fabric::release_due() noexcept {
    const uint64_t now = monotonic_ns();
    unsigned released = 0;
    held_.fired();
    for (Port* port : ports_)
        if (port->due_ns() <= now)
            port->expire(now);
    for (; released < kHeldPerTurn; released++) {
        auto held = held_.take_due(now);
        if (!held)
            break;
        hand_over(*ports_[held->port], held->segment);
    }
    flush();
    return released == kHeldPerTurn;
}

void Fabric::unplugged(const Port& port) noexcept {
    macs_.forget_port(port.id());
    held_.drop_port(port.id());
}

void Fabric::settle(bool idle) noexcept {
    uint64_t due = UINT64_MAX;
    for (const Port* port : ports_)
        due = std::min(due, port->due_ns());
    held_.arm(due);
    if (!idle)
        return;
    for (Port* port : ports_)
        if (port->pcap)
            port->pcap->flush();
}

// What is on the wire has true checksums; the segment in flight may still lack them.
void Fabric::capture(Port& port, const Packet& segment) noexcept {
    if (!packet_copy(captured_, segment))
        return;
    captured_.fill_checksums();
    const uint32_t bytes = captured_.bytes();
    if (bytes > capture_bytes_.size())
        return;
    captured_.write_to(capture_bytes_.data());
    port.pcap->write(unix_time_ns(),
                     {reinterpret_cast<const uint8_t*>(capture_bytes_.data()), bytes});
}

}  // namespace nupa::daemon
