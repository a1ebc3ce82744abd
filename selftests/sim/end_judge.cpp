// SPDX-License-Identifier: BSD-3-Clause
// What the engine wrote: right, or a violation.
#include <tcp_qp/tcp_bth_option.h>
#include <algorithm>
#include <cstring>

#include "end.hpp"
#include "world.hpp"

namespace sim {

namespace {

// Also in the middle of a train that begins with it.
bool names_message_0(const nupa::Packet& p) {
    tcp_bth bth;
    return tcp_bth_find(p.header.data() + p.at.options_at, p.at.option_bytes(), p.at.seq,
                        p.payload.bytes(), &bth, nullptr) == TCP_BTH_OK &&
           bth.msn == 0 && bth.opcode != TCP_BTH_OP_ACKNOWLEDGE;
}

}  // namespace

// Only a segment where TCP waits for one, or message 0, which names its own
// start, proves that a context has missed nothing that it might place.
void End::segment_seen(const nupa::Packet& packet, const Truth& truth) {
    qp_.disturb();
    proven_ |= truth.tampered;  // it may claim to be message 0
    misled_ |= truth.tampered;
    proven_ |= truth.len && (truth.at <= tcp_.next() || names_message_0(packet));
    if (truth.len && truth.at < forged_reach_)  // delivered as a whole
        forged_reach_ = std::max(forged_reach_, truth.at + truth.len);
}

// It is remembered as far ahead as TCP's largest window could reach.
void End::forged(const nupa::Packet& packet) {
    constexpr std::uint32_t kWindowMax = 65535;
    const Stream& in = peer().sender_.stream;
    const std::uint32_t at = in.offset(packet.at.seq), bytes = packet.payload.bytes();
    world_.log.add(world_.now(), "end {}.{} forged segment {} + {}",
                   {number_, static_cast<std::uint64_t>(side_), at, bytes});
    if (at <= in.end() + (kWindowMax << settings().wscale))
        forged_reach_ = std::max(forged_reach_, at + bytes);
}

// A late duplicate of a message that is done: its buffer may be posted again.
void End::count_late(const Truth& truth) {
    const Stream& in = peer().sender_.stream;
    if (truth.len && in.message_at(truth.at) < qp_.done())
        world_.coverage.add(k_late_on_completed);
}

void End::judge_placed(const Truth& truth, const tcp_bth& bth, const std::vector<Write>& writes) {
    const std::uint64_t side = static_cast<std::uint64_t>(side_);
    Stream& in = peer().sender_.stream;
    std::uint64_t bytes = 0;
    for (const Write& w : writes)
        bytes += w.bytes;
    if (bytes == 0 && placed_before(truth))
        return;
    if (bytes != truth.len)
        world_.violation("end {}.{} segment at {} + {}: {} bytes written",
                         {number_, side, truth.at, truth.len, bytes});
    if (gone_)
        world_.violation("end {}.{} segment at {} was placed after the QP was destroyed",
                         {number_, side, truth.at});
    if (settings().hostile || truth.tampered) {
        judge_loosely(truth, bth, writes);
        return;
    }
    const std::size_t index = in.message_at(truth.at);
    if (index == in.messages.size())
        world_.violation("end {}.{} bytes at {} of no message were placed",
                         {number_, side, truth.at});
    if (!proven_)
        world_.violation("end {}.{} message {}: placed by a context that may have missed bytes",
                         {number_, side, index});
    for (const Part& part : parts(truth))
        judge_open(part);
    if (in.any(truth.at, truth.len, kBytePlaced))
        world_.violation("end {}.{} bytes at {} + {} were placed twice",
                         {number_, side, truth.at, truth.len});
    if (!recreated_ && in.any(truth.at, truth.len, kByteHeld))
        world_.violation("end {}.{} bytes at {} + {} were placed although TCP has them",
                         {number_, side, truth.at, truth.len});
    for (const Part& part : parts(truth)) {
        const Message& m = in.messages[part.message];
        if (m.write() && !exposed_.claim(m, part.offset, part.bytes))
            world_.violation("end {}.{} message {}: placed over a later WRITE",
                             {number_, side, part.message});
    }
    judge_target(truth, writes);
    if (tcp_bth_is_mixed_train(bth.opcode))
        world_.coverage.add(bth.opcode == TCP_BTH_OP_MIXED_TRAIN
                                ? k_mixed_train_segments_placed
                                : k_write_mixed_train_segments_placed);
    else if (tcp_bth_is_train(bth.opcode))
        world_.coverage.add(bth.opcode == TCP_BTH_OP_SEND_TRAIN ? k_train_segments_placed
                                                                : k_write_train_segments_placed);
    in.mark(truth.at, truth.len, kBytePlaced | kByteHonest | kByteWritten);
}

// The messages that own the segment's bytes: several of a train.
std::vector<End::Part> End::parts(const Truth& truth) const {
    const Stream& in = world_.end(number_, 1 - side_).sender_.stream;
    std::vector<Part> all;
    std::uint32_t at = truth.at;
    for (std::size_t i = in.message_at(at); at < truth.at + truth.len; i++) {
        if (i >= in.messages.size())
            world_.violation("end {}.{} bytes at {} of no message were placed",
                             {number_, static_cast<std::uint64_t>(side_), at});
        const Message& m = in.messages[i];
        const std::uint32_t n = std::min(truth.at + truth.len, m.at + m.stream_bytes) - at;
        all.push_back({i, at - m.at, n});
        at += n;
    }
    return all;
}

void End::judge_open(const Part& part) {
    const std::uint64_t side = static_cast<std::uint64_t>(side_);
    const Message& m = peer().sender_.stream.messages[part.message];
    if (!m.payload() || !m.length)
        world_.violation("end {}.{} message {}: bytes that belong to no buffer were placed",
                         {number_, side, part.message});
    if (!qp_.open(part.message))
        world_.violation(
            "end {}.{} message {}: written without a receive, a right, a READ, or after its end",
            {number_, side, part.message});
}

// A WRITE that TCP dropped, sent again: its bytes must be in memory already, or
// taken by TCP; the host will copy none of them.
bool End::placed_before(const Truth& truth) const {
    const Stream& in = world_.end(number_, 1 - side_).sender_.stream;
    for (std::uint32_t i = truth.at; i < truth.at + truth.len; i++)
        if (i >= tcp_.next() && !(in.state[i] & kBytePlaced))
            return false;
    return true;
}

// The right bytes, to the right place, low to high.
void End::judge_target(const Truth& truth, const std::vector<Write>& writes) {
    const std::uint64_t side = static_cast<std::uint64_t>(side_);
    const Stream& in = peer().sender_.stream;
    const std::size_t index = in.message_at(truth.at);
    const std::byte* value = in.bytes.data() + truth.at;
    std::vector<QpReceiver::Run> runs;
    for (const Part& part : parts(truth))
        for (const QpReceiver::Run& r : qp_.place(part.message, part.offset, part.bytes))
            runs.push_back(r);
    auto run = runs.begin();
    for (const Write& w : writes) {
        std::uint64_t at = host_.ram.addr_of(w.to);
        for (std::uint64_t left = w.bytes; left;) {
            if (run == runs.end() || run->addr != at)
                world_.violation("end {}.{} message {} byte at {} written to {}, belongs elsewhere",
                                 {number_, side, index,
                                  static_cast<std::uint64_t>(value - in.bytes.data()), at});
            const std::uint64_t n = std::min(left, run->bytes);
            const bool stays = std::none_of(run + 1, runs.end(), [&](const QpReceiver::Run& later) {
                return later.addr < at + n && at < later.addr + later.bytes;
            });  // else a later WRITE of the same segment has its place
            if (stays && std::memcmp(host_.ram.at(at), value, n) != 0)
                world_.violation("end {}.{} message {}: wrong bytes placed at {}",
                                 {number_, side, index, at});
            host_.ram.accept(at, n);
            at += n, left -= n, value += n;
            run->addr += n, run->bytes -= n;
            if (run->bytes == 0)
                ++run;
        }
    }
}

// A message whose start is known from a segment that nobody changed has no other.
void End::judge_start(const Truth& truth, const tcp_bth& bth) {
    const Stream& in = peer().sender_.stream;
    for (const Message& m : in.messages)
        if (m.receive != kNoReceive && !m.write() && m.msn == bth.msn &&
            in.any(m.at, m.length, kByteHonest) && bth.start_seq != in.seq(m.at))
            world_.violation(
                "end {}.{} segment at {} names another start of msn {}, and was placed",
                {number_, static_cast<std::uint64_t>(side_), truth.at, bth.msn});
}

// A hostile application may send its own process's bytes anywhere in its own
// memory; a changed option may do so among this QP's open receives, the sinks
// that wait and what the peer may WRITE anyway.
void End::judge_loosely(const Truth& truth, const tcp_bth& bth, const std::vector<Write>& writes) {
    const std::uint64_t side = static_cast<std::uint64_t>(side_);
    if (!settings().hostile && tcp_bth_is_send(bth.opcode))
        judge_start(truth, bth);
    exposed_.spoil();
    for (const Write& w : writes) {
        const std::uint64_t addr = host_.ram.addr_of(w.to);
        const bool allowed =
            settings().hostile
                ? host_.writable(addr, w.bytes, pd_of(*this))
                : qp_.inside_open(addr, w.bytes) || reads_.inside(addr, w.bytes) ||
                      (!settings().refuses_writes &&
                       host_.writable(addr, w.bytes, pd_of(*this), NUPA_ACCESS_REMOTE_WRITE));
        if (!allowed)
            world_.violation("end {}.{} segment at {} written to {}, where nobody may",
                             {number_, side, truth.at, addr});
        host_.ram.accept(addr, w.bytes);
    }
    peer().sender_.stream.mark(truth.at, truth.len, kBytePlaced | kByteWritten);
}

}  // namespace sim
