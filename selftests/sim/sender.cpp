// SPDX-License-Identifier: BSD-3-Clause
#include "sender.hpp"

#include <algorithm>

#include "end.hpp"
#include "world.hpp"

namespace sim {

namespace {

constexpr std::uint32_t kLogEntries = 8;
constexpr std::uint32_t kRtoFirstUs = 3000, kRtoLastUs = 40000;
constexpr std::uint32_t kRepairEveryUs = 500;
constexpr int kBurstsPerTurn = 12;

}  // namespace

Sender::Sender(End& end, std::vector<std::uint32_t> lengths)
    : stream(end.world().stream_from(end.number(), end.side())),
      end_(end),
      lengths_(std::move(lengths)),
      records_(kLogEntries),
      msn_(end.settings().first_msn),
      rto_us_(kRtoFirstUs) {
    tqp_msglog_init(&log_, records_.data(), kLogEntries);
    Ram& ram = end.host().ram;
    const std::uint32_t bytes = end.connection().message_max;
    for (std::uint32_t i = 0; i < end.buffers(); i++)
        buffers_.push_back({ram.alloc(bytes, 1), 0, false});
    stream.isn = end.settings().isn;
    stream.plain = end.settings().plain_bytes;
    for (std::uint32_t i = 0; i < stream.plain; i++)
        stream.bytes.push_back(static_cast<std::byte>(end.world().dice.bits()));
    stream.state.resize(stream.end());
    sacked_.resize(stream.end());
    right_edge_ = end.connection().mss;  // until the peer's first window
}

bool Sender::post() {
    if (stream.messages.size() >= std::min(allowed_, lengths_.size()))
        return false;
    const auto free =
        std::find_if(buffers_.begin(), buffers_.end(), [](const Buffer& b) { return !b.busy; });
    tqp_msg_rec* rec = tqp_msglog_next(&log_);
    if (free == buffers_.end() || !rec)
        return false;
    Dice& dice = end_.world().dice;
    Message m{};
    m.at = stream.end();
    m.length = lengths_[stream.messages.size()];
    m.stream_bytes = tqp_msg_stream_bytes(m.length);
    m.msn = msn_++;
    m.opcode = dice.percent(30) ? TCP_BTH_OP_SEND_ONLY_IMM : TCP_BTH_OP_SEND_ONLY;
    m.imm = m.opcode == TCP_BTH_OP_SEND_ONLY_IMM ? static_cast<std::uint32_t>(dice.bits()) : 0;
    for (std::uint32_t i = 0; i < m.stream_bytes; i += 8) {
        const std::uint64_t bits = dice.bits();
        for (std::uint32_t b = 0; b < std::min(8u, m.stream_bytes - i); b++)
            stream.bytes.push_back(static_cast<std::byte>(bits >> (8 * b)));
    }
    stream.state.resize(stream.end());
    sacked_.resize(stream.end());
    end_.host().ram.store(free->addr, std::span(stream.bytes).subspan(m.at, m.length));
    *rec = {};
    rec->start_seq = stream.seq(m.at);
    rec->length = m.length;
    rec->msn = m.msn;
    rec->opcode = m.opcode;
    rec->ext_bytes = static_cast<__u8>(tcp_bth_ext_bytes(m.opcode));
    rec->ext4 = m.imm;
    tqp_msglog_commit(&log_);
    *free = {free->addr, stream.messages.size(), true};
    if (m.msn == 0 && end_.settings().first_msn != 0)
        end_.world().coverage.add(k_msn_wraps);
    if (stream.seq(stream.end()) < stream.seq(m.at))
        end_.world().coverage.add(k_sequence_wraps);
    stream.messages.push_back(m);
    end_.world().log.add(end_.world().now(), "end {}.{} posts send {} msn {} at {} + {}",
                         {end_.number(), static_cast<std::uint64_t>(end_.side()),
                          stream.messages.size() - 1, m.msn, m.at, m.length});
    return true;
}

// Where TCP reads the bytes it sends: the application's own buffer.
const std::byte* Sender::bytes_at(std::uint32_t at) const {
    const std::size_t index = stream.message_at(at);
    if (index < stream.messages.size() && stream.messages[index].length)
        for (const Buffer& b : buffers_)
            if (b.busy && b.message == index)
                return end_.host().ram.at(b.addr + (at - stream.messages[index].at));
    return stream.bytes.data() + at;
}

// How much of [at, limit) may be one packet: never over a message's end.
std::uint32_t Sender::piece(std::uint32_t at, std::uint32_t limit) {
    Dice& dice = end_.world().dice;
    const ConnectionSettings& c = end_.connection();
    const tqp_msg_rec* rec = tqp_msglog_find(&log_, stream.seq(at));
    std::uint32_t most = at < stream.plain ? stream.plain - at : limit - at;
    if (rec)
        most = tqp_msg_stream_bytes(rec->length) - (stream.seq(at) - rec->start_seq);
    const bool bursts = end_.settings().engine != Engine::kSoftwareV0;
    most = std::min({most, limit - at, c.mss * (bursts ? c.burst_max : 1)});
    return dice.percent(25) ? 1 + dice.below(most) : most;
}

void Sender::emit(std::uint32_t at, std::uint32_t len) {
    const tqp_msg_rec* rec = tqp_msglog_find(&log_, stream.seq(at));
    if (!rec && at >= stream.plain)
        end_.world().violation("end {}.{} has no record for stream byte {}",
                               {end_.number(), static_cast<std::uint64_t>(end_.side()), at});
    if (at < highest_)
        end_.world().coverage.add(k_retransmits);
    end_.send_data(at, {bytes_at(at), len}, rec);
}

void Sender::send() {
    const std::uint32_t limit = std::min(stream.end(), right_edge_);
    if (una_ == highest_ && next_ < limit)
        rto_at_ = end_.world().now() + rto_us_;
    for (int i = 0; i < kBurstsPerTurn && next_ < limit; i++) {
        if (next_ < highest_ && sacked_[next_]) {
            next_++;
            i--;
            continue;
        }
        const std::uint32_t n = piece(next_, limit);
        emit(next_, n);
        next_ += n;
        highest_ = std::max(highest_, next_);
    }
}

void Sender::acked(std::uint32_t ack, std::uint32_t window_bytes, const std::vector<Range>& sack) {
    right_edge_ = std::max(right_edge_, ack + window_bytes);
    for (const Range& r : sack)
        std::fill(sacked_.begin() + r.begin, sacked_.begin() + std::min(r.end, highest_), true);
    if (ack > una_) {
        una_ = ack;
        next_ = std::max(next_, una_);
        rto_us_ = kRtoFirstUs;
        rto_at_ = end_.world().now() + rto_us_;
        tqp_msglog_ack(&log_, stream.seq(una_));
        release();
    }
    if (!sack.empty())
        repair();
}

// Sends whose last byte is acknowledged are done: their buffers are the application's again.
void Sender::release() {
    for (Buffer& b : buffers_) {
        if (!b.busy)
            continue;
        const Message& m = stream.messages[b.message];
        if (m.at + m.stream_bytes > una_)
            continue;
        b.busy = false;
        end_.host().ram.fill(b.addr, m.length, static_cast<std::uint8_t>(end_.world().dice.bits()));
    }
}

void Sender::drop() {
    for (Buffer& b : buffers_) {
        b.busy = false;
        end_.host().ram.fill(b.addr, end_.connection().message_max, 0xdd);
    }
}

// Fast retransmission: holes below the highest SACK, cut in any way.
void Sender::repair() {
    const std::uint64_t now = end_.world().now();
    if (now - repaired_at_ < kRepairEveryUs)
        return;
    repaired_at_ = now;
    std::uint32_t top = highest_;
    while (top > una_ && !sacked_[top - 1])
        top--;
    int bursts = 0;
    for (std::uint32_t at = una_; at < top && bursts < kBurstsPerTurn; bursts++) {
        while (at < top && sacked_[at])
            at++;
        std::uint32_t end = at;
        while (end < top && !sacked_[end])
            end++;
        if (at == end)
            break;
        const std::uint32_t n = piece(at, end);
        emit(at, n);
        at += n;
    }
}

void Sender::timeout() {
    World& world = end_.world();
    world.coverage.add(k_timeouts);
    rto_us_ = std::min(rto_us_ * 2, kRtoLastUs);
    rto_at_ = world.now() + rto_us_;
    std::fill(sacked_.begin(), sacked_.end(), false);  // the peer may have reneged
    const std::uint32_t limit = std::min(highest_, right_edge_);
    if (una_ >= limit)
        return;
    if (world.dice.percent(50)) {
        next_ = una_;  // go back
        send();
    } else {
        emit(una_, piece(una_, limit));
    }
}

// A window update may be lost: ask.
void Sender::persist() {
    if (end_.world().now() < rto_at_)
        return;
    rto_at_ = end_.world().now() + rto_us_;
    rto_us_ = std::min(rto_us_ * 2, kRtoLastUs);
    end_.world().coverage.add(k_zero_window);
    end_.send_probe(una_);
}

void Sender::tick() {
    World& world = end_.world();
    if (una_ < highest_ && world.now() >= rto_at_)
        timeout();
    if ((una_ == highest_ || una_ >= right_edge_) && next_ < stream.end() && next_ >= right_edge_)
        persist();
    const std::uint32_t limit = std::min(highest_, right_edge_);
    if (una_ < limit && !world.quiet() && world.dice.per_mille(world.faults().spurious)) {
        world.coverage.add(k_spurious);
        const std::uint32_t at = una_ + world.dice.below(limit - una_);
        emit(at, piece(at, limit));
    }
    overrun();
    send();
}

// A peer that does not care what window it was given.
void Sender::overrun() {
    World& world = end_.world();
    if (world.quiet() || right_edge_ >= stream.end() ||
        !world.dice.per_mille(world.faults().overrun))
        return;
    world.coverage.add(k_overruns);
    const std::uint32_t n = piece(right_edge_, stream.end());
    emit(right_edge_, n);
    highest_ = std::max(highest_, right_edge_ + n);
}

}  // namespace sim
