// SPDX-License-Identifier: BSD-3-Clause
#include "sender.hpp"

#include <algorithm>
#include <iterator>

#include "end.hpp"
#include "world.hpp"

namespace sim {

namespace {

constexpr std::uint32_t kLogEntries = 8;
constexpr std::uint32_t kRtoFirstUs = 3000, kRtoLastUs = 40000;
constexpr std::uint32_t kRepairEveryUs = 500;
constexpr int kBurstsPerTurn = 12;

}  // namespace

Sender::Sender(End& end, std::vector<Planned> plan)
    : stream(end.world().stream_from(end.number(), end.side())),
      end_(end),
      plan_(std::move(plan)),
      records_(kLogEntries),
      rto_us_(kRtoFirstUs) {
    const std::uint16_t first = end.settings().first_msn;
    msn_ = {first, first, first, first};
    std::copy_if(plan_.begin(), plan_.end(), std::back_inserter(untagged_),
                 [](const Planned& p) { return p.untagged(); });
    tqp_msglog_init(&log_, records_.data(), kLogEntries);
    Ram& ram = end.host().ram;
    const std::uint32_t bytes = end.connection().message_max;
    for (std::uint32_t i = 0; i < end.buffers(); i++)
        buffers_.push_back({ram.alloc(bytes, 1), 0, false});
    stream.isn = end.settings().isn;
    stream.plain = end.settings().plain_bytes;
    draw_bytes(stream.plain);
    right_edge_ = end.connection().mss;  // until the peer's first window
}

// ---- TCP ----

// Bytes of @rec's message from @seq on, and of those behind it in its train.
std::uint32_t Sender::left_of_train(const tqp_msg_rec& rec, std::uint32_t seq) const {
    std::uint32_t left = tqp_msg_stream_bytes(rec.length) - (seq - rec.start_seq);
    const tqp_msg_rec* next = &rec;
    for (std::uint16_t place = rec.train_place + 1;; place++) {
        next = &records_[static_cast<std::size_t>(next - records_.data() + 1) & log_.mask];
        const bool logged =
            next->start_seq == seq + left && next->train_place == place && next->mixed == rec.mixed;
        if (!logged || seq + left == stream.seq(stream.end()))
            return left;
        left += next->length;
    }
}

// How much of [at, limit) may be one packet: never over a message's or a train's end.
std::uint32_t Sender::piece(std::uint32_t at, std::uint32_t limit) {
    Dice& dice = end_.world().dice;
    const ConnectionSettings& c = end_.connection();
    const tqp_msg_rec* rec = tqp_msglog_find(&log_, stream.seq(at));
    std::uint32_t most = at < stream.plain ? stream.plain - at : limit - at;
    if (rec)
        most = left_of_train(*rec, stream.seq(at));
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
    const tqp_msg_rec* last = rec ? tqp_msglog_last(&log_, rec, stream.seq(at), len) : nullptr;
    if (rec && !last)
        end_.world().violation("end {}.{} has no train of the {} bytes at {}",
                               {end_.number(), static_cast<std::uint64_t>(end_.side()), len, at});
    if (rec != last)
        end_.world().coverage.add(k_trains);
    end_.send_data(at, bytes_at(at, len), rec, last);
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
