// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/fabric.hpp"

#include <algorithm>

#include "event/clock.hpp"

namespace nupa::daemon {
namespace {

constexpr size_t kCaptureMaxBytes = (64 << 10) + kHeaderMaxBytes;

// What a middlebox or a bad cable does to the segment; false: nothing usable is left of it.
bool damage(Link& to, const Faults& faults, const FaultDecision& fault, Packet& segment) noexcept {
    const auto count_if = [&to](bool done, nupa_stat stat) {
        to.port().stats().add(stat, done ? 1 : 0);
    };
    if (faults.config().copy_ppm)
        count_if(to.impairments().copy_option(segment, fault.copy), NUPA_STAT_fault_copy);
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
bool untouched(const Link& from, const Link& to, const Packet& burst, TxRewrite rewrite) noexcept {
    return burst.tso && !rewrite.icrc && !from.pcap() && !to.pcap() && to.up() && !to.impaired();
}

}  // namespace

Fabric::Fabric() : capture_bytes_(kCaptureMaxBytes) {}

void Fabric::attach(Port& port) {
    links_.push_back(std::make_unique<Link>(port));
    dirty_.reserve(links_.size());
}

uint16_t Fabric::port_of(const Packet& packet) const noexcept {
    const Link* to = destination(packet);
    return to ? to->port().id() : kNoPort;
}

// Null: everybody but the sender.
Link* Fabric::destination(const Packet& packet) const noexcept {
    const uint8_t* dst = packet.header.data();
    if (is_multicast(dst))
        return nullptr;
    const int port = macs_.find(dst);
    return port == MacTable::kUnknown ? nullptr : links_[static_cast<size_t>(port)].get();
}

void Fabric::expect(std::span<const Packet> packets) noexcept {
    while (!packets.empty()) {
        Link* to = destination(packets[0]);
        size_t same = 1;
        while (same < packets.size() && destination(packets[same]) == to)
            same++;
        if (to)
            to->port().expect(packets.first(same));
        packets = packets.subspan(same);
    }
}

void Fabric::forward(Port& from, const Packet& packet, TxRewrite rewrite) noexcept {
    const Link& link = link_of(from);
    PortStats& stats = from.stats();
    if (!link.up()) {
        stats.add(NUPA_STAT_tx_drop_unknown);
        return;
    }
    if (!macs_.learn(packet.header.data() + 6, from.id(), from.kind())) {
        stats.add(NUPA_STAT_tx_drop_source);
        return;
    }
    Link* to = destination(packet);
    if (to == &link || links_.size() < 2) {
        stats.add(NUPA_STAT_tx_drop_unknown);
        return;
    }
    stats.add(NUPA_STAT_tx_packets);
    if (!to)
        stats.add(NUPA_STAT_tx_flood);
    const uint32_t span = to && untouched(link, *to, packet, rewrite) ? to->port().span(packet) : 0;
    Cutter cutter = span ? Cutter(packet, span) : Cutter(packet, rewrite);
    for (uint32_t cut = 0; cutter.next(segment_); cut++) {
        if (!to && cut == kFloodSegmentsMax) {
            stats.add(NUPA_STAT_queue_drop, packet.segments() - cut);
            return;
        }
        stats.add(NUPA_STAT_tx_segments, segment_.segments());
        stats.add(NUPA_STAT_tx_bytes, segment_.wire_bytes());
        if (link.pcap())
            capture(link, segment_);
        send(link, to, segment_);
    }
}

void Fabric::send(const Link& from, Link* to, Packet& segment) noexcept {
    if (to)
        egress(*to, segment);
    else
        flood(from, segment);
}

void Fabric::flood(const Link& from, const Packet& segment) noexcept {
    for (const auto& to : links_) {
        if (to.get() == &from || !to->up())
            continue;
        if (packet_copy(copy_, segment))
            egress(*to, copy_);
        else
            to->port().stats().add(NUPA_STAT_queue_drop);
    }
}

void Fabric::egress(Link& to, Packet& segment) noexcept {
    if (!to.up())
        return;
    if (to.impaired())
        impair(to, segment);
    else
        hand_over(to, segment);
}

void Fabric::impair(Link& to, Packet& segment) noexcept {
    Faults& faults = to.impairments().faults_of(segment);
    const FaultDecision fault = faults.decide();
    if (fault.lose) {
        to.port().stats().add(NUPA_STAT_fault_loss);
        return;
    }
    if (!damage(to, faults, fault, segment))
        return;
    const bool twice = fault.duplicate && packet_copy(duplicate_, segment);
    schedule(to, segment, fault);
    if (twice) {
        to.port().stats().add(NUPA_STAT_fault_duplicate);
        schedule(to, duplicate_, FaultDecision{});
    }
    held_.passed(to.port().id());
    while (auto overtaken = held_.take_overtaken())
        hand_over(*links_[overtaken->port], overtaken->segment);
}

void Fabric::schedule(Link& to, Packet& segment, const FaultDecision& fault) noexcept {
    const uint64_t now = monotonic_ns();
    const LinkVerdict verdict = to.impairments().admit(now, segment.bytes());
    if (verdict.drop) {
        to.port().stats().add(NUPA_STAT_queue_drop);
        return;
    }
    if (verdict.mark && segment.mark_ce())
        to.port().stats().add(NUPA_STAT_ecn_marked);
    const uint64_t due = verdict.depart_ns + fault.delay_ns;
    if (due <= now && !fault.reorder_packets) {
        hand_over(to, segment);
        return;
    }
    // From here on it waits, and the sender gets its buffers back.
    bool kept = segment.own();
    if (kept && fault.reorder_packets)  // it is itself the first that passes
        kept =
            held_.hold_behind(fault.reorder_packets + 1, now, to.port().id(), std::move(segment));
    else if (kept)
        kept = held_.hold_until(due, to.port().id(), std::move(segment));
    if (!kept) {
        to.port().stats().add(NUPA_STAT_queue_drop);
        return;
    }
    if (fault.reorder_packets)
        to.port().stats().add(NUPA_STAT_fault_reorder);
    if (fault.delay_ns)
        to.port().stats().add(NUPA_STAT_fault_delay);
}

void Fabric::hand_over(Link& to, Packet& segment) noexcept {
    if (!to.up())
        return;
    if (to.pcap())
        capture(to, segment);
    if (to.mark_dirty())
        dirty_.push_back(&to);
    to.hand_over(segment);
}

void Fabric::flush() noexcept {
    for (Link* link : dirty_)
        link->flush();
    dirty_.clear();
}

bool Fabric::release_due() noexcept {
    const uint64_t now = monotonic_ns();
    unsigned released = 0;
    held_.fired();
    for (const auto& link : links_)
        if (Port& port = link->port(); port.due_ns() <= now)
            port.expire(now);
    for (; released < kHeldPerTurn; released++) {
        auto held = held_.take_due(now);
        if (!held)
            break;
        hand_over(*links_[held->port], held->segment);
    }
    flush();
    return released == kHeldPerTurn;
}

void Fabric::unplugged(const Port& port) noexcept {
    macs_.forget_port(port.id());
    held_.drop_port(port.id());
}

void Fabric::end_turn(bool idle) noexcept {
    uint64_t due = Port::kNever;
    for (const auto& link : links_)
        due = std::min(due, link->port().due_ns());
    held_.arm(due);
    if (!idle)
        return;
    for (const auto& link : links_)
        if (link->pcap() && !link->pcap()->flush())
            link->capture_to(nullptr);
}

// What is on the wire has true checksums; the segment in flight may still lack them.
void Fabric::capture(const Link& link, const Packet& segment) noexcept {
    if (!packet_copy(captured_, segment))
        return;
    captured_.fill_checksums();
    const uint32_t bytes = captured_.bytes();
    if (bytes > capture_bytes_.size())
        return;
    captured_.write_to(capture_bytes_.data());
    link.pcap()->write(unix_time_ns(),
                       {reinterpret_cast<const uint8_t*>(capture_bytes_.data()), bytes});
}

}  // namespace nupa::daemon
