// SPDX-License-Identifier: BSD-3-Clause
#include "merge.hpp"

#include <tcp_qp/tcp_bth_option.h>
#include <algorithm>
#include <cstring>

#include "checksum.hpp"
#include "endian.hpp"

namespace nupa {

namespace {

constexpr std::uint32_t kIpv4PlainBytes = 20;
constexpr std::uint32_t kTimestampBytes = 8;  // folded: value and echo
constexpr std::uint8_t kEndFlags = kTcpFin | kTcpPsh;
constexpr std::uint8_t kNeverFlags = kTcpSyn | kTcpRst | kTcpUrg;

bool same(const std::uint8_t* a, const std::uint8_t* b, std::uint32_t from,
          std::uint32_t to) noexcept {
    return std::memcmp(a + from, b + from, to - from) == 0;
}

// May @packet be part of a run at all?
bool mergeable(const Packet& packet) noexcept {
    const Headers& at = packet.at;
    if (!at.tcp() || packet.payload.bytes() == 0 || at.tcp_flags & kNeverFlags ||
        !(at.tcp_flags & kTcpAck))
        return false;
    if (at.ip_csum_bad || (packet.csum != Csum::kPartial && packet.csum != Csum::kGood))
        return false;
    const std::uint32_t ip_bytes = at.l4_at - at.l3_at;
    return ip_bytes == (at.family == 4 ? kIpv4PlainBytes : kIpv6Bytes);
}

bool mergeable(const Packet& packet, const Decision& decision) noexcept {
    // The host checks the ICRC of delivered segments one by one.
    return mergeable(packet) &&
           (!decision.has_bth || decision.placed() || !(decision.bth.flags & TCP_BTH_F_ICRC));
}

bool ends_message(const Packet& packet, const Decision& decision) noexcept {
    if (!decision.has_bth)
        return false;
    const tcp_bth& b = decision.bth;
    if (b.ver == 1)
        return b.mbo + packet.payload.bytes() == tcp_bth_stream_bytes(&b);
    return tcp_bth_position(b.opcode) & TCP_BTH_POS_LAST;
}

// Is the last segment shorter than the others, of @full bytes each?
bool ends_short(const Packet& packet, std::uint32_t full) noexcept {
    return full != 0 && packet.payload.bytes() % full != 0;
}

// Equal for all segments that may be of one message; a message that is one segment is alone.
int message_class(std::uint8_t opcode) noexcept {
    if (tcp_bth_is_send(opcode))
        return TCP_BTH_KIND_SEND;
    return tcp_bth_is_tagged(opcode) ? tcp_bth_op(opcode)->kind : 0x100 | opcode;
}

}  // namespace

std::uint16_t rx_flags(const Packet& packet, const Decision& decision) noexcept {
    std::uint16_t flags = 0;
    if (packet.csum == Csum::kBad || packet.at.ip_csum_bad)
        flags |= NUPA_RX_F_CSUM_BAD;
    else if (packet.csum == Csum::kPartial || packet.csum == Csum::kGood)
        flags |= NUPA_RX_F_CSUM_OK;
    if (packet.at.tcp())
        flags |= packet.at.family == 4 ? NUPA_RX_F_TCP4 : NUPA_RX_F_TCP6;
    if (decision.placed())
        flags |= NUPA_RX_F_PLACED;
    if (decision.stream)
        flags |= NUPA_RX_F_STREAM;
    if (decision.has_qp)
        flags |= NUPA_RX_F_QP;
    if (decision.completed)
        flags |= NUPA_RX_F_COMPLETED;
    return flags;
}

void Merger::configure(std::uint32_t buf_bytes, bool enabled,
                       std::uint32_t run4_max_bytes) noexcept {
    buf_bytes_ = buf_bytes;
    enabled_ = enabled;
    run4_max_bytes_ = run4_max_bytes ? run4_max_bytes : kIpLengthMaxBytes;
}

// IPv4 says a length above 64 KiB by none at all.  IPv6 would need a jumbogram header, which no
// segment had.
std::uint32_t Merger::payload_max(const Headers& at, bool placed) const noexcept {
    const std::uint32_t ip_header = at.header_bytes - at.l3_at;
    if (placed && at.family == 4)
        return kPlacedRunMaxBytes - at.header_bytes;
    const std::uint32_t by_ip =
        at.family == 4 ? std::max(run4_max_bytes_, ip_header) : kIpLengthMaxBytes + kIpv6Bytes;
    return placed ? by_ip - ip_header
                  : std::min(by_ip - ip_header, kDeliveredBuffersMax * buf_bytes_);
}

bool Merger::same_flow(const Packet& packet) const noexcept {
    return active_ && packet.flow() == run_.flow;
}

void Merger::start(const Packet& packet, const Decision& decision) noexcept {
    at_ = packet.at;
    first_ = decision;
    std::memcpy(run_.header.data(), packet.header.data(), at_.header_bytes);
    run_.header_bytes = at_.header_bytes;
    run_.flags = rx_flags(packet, decision);
    run_.gso_size = packet.mss;
    run_.gso_segs = static_cast<std::uint16_t>(packet.segments());
    run_.payload_bytes = packet.payload.bytes();
    run_.qpn = decision.qpn;
    run_.flow = packet.flow();
    next_seq_ = at_.seq + run_.payload_bytes;
    last_flags_ = at_.tcp_flags & kEndFlags;
    last_opcode_ = decision.bth.opcode;
    active_ = true;
    closed_ = !enabled_ || !mergeable(packet, decision) || last_flags_ ||
              ends_message(packet, decision) || ends_short(packet, run_.gso_size);
}

std::uint32_t Merger::span(const Packet& burst, bool placed) const noexcept {
    if (!enabled_ || !mergeable(burst) || burst.at.jumbo_at != 0)
        return 0;
    return payload_max(burst.at, placed) / burst.mss * burst.mss;
}

bool Merger::fits(const Packet& packet, const Decision& decision) const noexcept {
    const std::uint32_t bytes = packet.payload.bytes();
    if (!active_ || closed_ || packet.at.seq != next_seq_ || !mergeable(packet, decision))
        return false;
    const std::uint32_t full = run_.gso_segs == 1 ? run_.payload_bytes : run_.gso_size;
    if ((packet.mss ? packet.mss != full : bytes > full) || full > UINT16_MAX ||
        run_.gso_segs + packet.segments() > kSegmentsMax ||
        run_.payload_bytes + bytes > payload_max(at_, first_.placed()))
        return false;
    return decision.placed() == first_.placed() && decision.has_qp == first_.has_qp &&
           decision.has_bth == first_.has_bth && same_headers(packet) &&
           same_options(packet, decision);
}

bool Merger::same_headers(const Packet& packet) const noexcept {
    const Headers& at = packet.at;
    if (at.header_bytes != at_.header_bytes || at.l3_at != at_.l3_at || at.l4_at != at_.l4_at ||
        at.family != at_.family || at.ack != at_.ack || at.window != at_.window ||
        at.tcp_flags & kTcpCwr || (at.tcp_flags ^ at_.tcp_flags) & ~(kEndFlags | kTcpCwr))
        return false;
    const std::uint8_t* a = run_.header.data();
    const std::uint8_t* b = packet.header.data();
    const std::uint32_t ip = at.l3_at, tcp = at.l4_at;
    if (!same(a, b, 0, ip) || !same(a, b, tcp, tcp + 4))
        return false;
    if (at.family == 4)  // all but length, id and checksum
        return same(a, b, ip, ip + 2) && same(a, b, ip + 6, ip + 10) && same(a, b, ip + 12, tcp);
    return same(a, b, ip, ip + 4) && same(a, b, ip + 6, tcp);  // all but length
}

// A placed run keeps those of its first segment: its value is what an acknowledgement for all of
// the run echoes (RFC 7323, 4.3), and its echo belongs to the ACK number that they share.
bool Merger::same_timestamps(const std::uint8_t* a, const std::uint8_t* b,
                             const Decision& decision) const noexcept {
    if (!first_.placed() || !(first_.bth.flags & TCP_BTH_F_TIMESTAMP))
        return same(a, b, 0, kTimestampBytes);
    return !seq_before(decision.bth.tsval, first_.bth.tsval) &&
           !seq_before(decision.bth.tsecr, first_.bth.tsecr);
}

bool Merger::same_options(const Packet& packet, const Decision& decision) const noexcept {
    const std::uint8_t* a = run_.header.data();
    const std::uint8_t* b = packet.header.data();
    const std::uint32_t begin = at_.options_at, end = at_.header_bytes;
    if (!first_.has_bth)
        return same(a, b, begin, end);
    if (first_.bth.ver == 1) {  // the same on all segments of its message, but for timestamps
        const std::uint32_t times = first_.bth_at + sizeof(tcp_bth_v1);
        if (decision.bth_at != first_.bth_at || !(first_.bth.flags & TCP_BTH_F_TIMESTAMP))
            return same(a, b, begin, end);
        return same(a, b, begin, times) && same_timestamps(a + times, b + times, decision) &&
               same(a, b, times + kTimestampBytes, end);
    }
    if (decision.bth.ver != 0 || decision.bth_at != first_.bth_at ||
        decision.bth.start_seq != first_.bth.start_seq ||
        tcp_bth_position(decision.bth.opcode) & TCP_BTH_POS_FIRST ||
        message_class(decision.bth.opcode) != message_class(first_.bth.opcode))
        return false;
    const std::uint32_t option = first_.bth_at;
    const std::uint32_t times = option + offsetof(tcp_bth_v0, tsval);
    return same(a, b, begin, option + offsetof(tcp_bth_head, opcode)) &&
           same(a, b, option + offsetof(tcp_bth_head, msn),
                option + offsetof(tcp_bth_v0, mbo_seg)) &&
           same_timestamps(a + times, b + times, decision) &&
           same(a, b, times + kTimestampBytes, end);
}

void Merger::append(const Packet& packet, const Decision& decision) noexcept {
    const std::uint32_t bytes = packet.payload.bytes();
    if (run_.gso_segs == 1)
        run_.gso_size = static_cast<std::uint16_t>(run_.payload_bytes);
    run_.gso_segs = static_cast<std::uint16_t>(run_.gso_segs + packet.segments());
    run_.payload_bytes += bytes;
    next_seq_ += bytes;
    last_flags_ |= packet.at.tcp_flags & kEndFlags;
    last_opcode_ = decision.bth.opcode;
    run_.flags &= static_cast<std::uint16_t>(~NUPA_RX_F_COMPLETED);
    if (decision.completed)  // and so is all before it
        run_.flags |= NUPA_RX_F_COMPLETED;
    closed_ = ends_short(packet, run_.gso_size) || last_flags_ || ends_message(packet, decision);
}

const Merged& Merger::finish() noexcept {
    if (run_.gso_segs > 1) {
        run_.header[at_.l4_at + 13] |= last_flags_;
        finish_bth();
        finish_ip();
    }
    active_ = false;
    closed_ = false;
    return run_;
}

void Merger::finish_ip() noexcept {
    std::uint8_t* ip = run_.header.data() + at_.l3_at;
    const std::uint32_t bytes = at_.header_bytes - at_.l3_at + run_.payload_bytes;
    if (at_.family == 6) {
        put_be16(ip + 4, static_cast<std::uint16_t>(bytes - kIpv6Bytes));
        return;
    }
    put_be16(ip + 2, bytes > kIpLengthMaxBytes ? 0 : static_cast<std::uint16_t>(bytes));
    put_be16(ip + 10, ipv4_header_checksum(ip, at_.l4_at - at_.l3_at));
}

// FIRST .. LAST is ONLY; MIDDLE .. LAST is LAST.  An ICRC over the first
// segment says nothing about the whole; every part was verified before.
void Merger::finish_bth() noexcept {
    if (!first_.has_bth || first_.bth.ver != 0)
        return;
    std::uint8_t* option = run_.header.data() + first_.bth_at;
    if (tcp_bth_position(last_opcode_) & TCP_BTH_POS_LAST)
        option[offsetof(tcp_bth_head, opcode)] =
            tcp_bth_position(first_.bth.opcode) & TCP_BTH_POS_FIRST ? tcp_bth_only(last_opcode_)
                                                                    : last_opcode_;
    option[offsetof(tcp_bth_head, flags)] &= static_cast<std::uint8_t>(~TCP_BTH_F_ICRC);
    std::memset(option + offsetof(tcp_bth_v0, icrc), 0, sizeof(__be32));
}

}  // namespace nupa
