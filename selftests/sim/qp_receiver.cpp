// SPDX-License-Identifier: BSD-3-Clause
#include "qp_receiver.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "end.hpp"
#include "world.hpp"

namespace sim {

namespace {

constexpr std::uint32_t kRegions = 2;          // of one QP's receive buffers
constexpr std::uint32_t kReadOnly = kRegions;  // one more, where nothing may be received
constexpr std::uint32_t kPlaceSlackBytes = 64;
constexpr std::uint32_t kPostsPerTurn = 4;

std::uint32_t key_of(const End& end, std::uint32_t region) {
    return 0x100 + 16 * end.number() + 4 * static_cast<std::uint32_t>(end.side()) + region;
}

// The sender's numbering.
std::uint16_t first_msn(const End& end) { return end.connection().end[1 - end.side()].first_msn; }

}  // namespace

QpReceiver::QpReceiver(End& end)
    : end_(end),
      host_(end.host()),
      ring_(host_.ram, end.settings().rq_entries, end.settings().sges_max, end.settings().rq_index,
            first_msn(end)) {
    next_.untagged = first_msn(end);
    const std::uint32_t bytes = end.connection().message_max + kPlaceSlackBytes;
    const std::uint32_t each = (end.buffers() + kRegions - 1) / kRegions;
    for (std::uint32_t i = 0; i < kRegions; i++) {
        const std::size_t r = host_.add_region(key_of(end, i), pd(), NUPA_ACCESS_LOCAL_WRITE,
                                               std::uint64_t{each} * bytes);
        for (std::uint32_t p = 0; p < each; p++)
            places_.push_back({r, host_.region(r).iova + std::uint64_t{p} * bytes, bytes, false});
    }
    host_.add_region(key_of(end, kReadOnly), pd(), NUPA_ACCESS_REMOTE_READ, kPageBytes);
}

std::uint32_t QpReceiver::pd() const noexcept {
    return 10 + 2 * end_.number() + static_cast<std::uint32_t>(end_.side());
}

// ---- application ----

void QpReceiver::turn() {
    poll();
    const EndSettings& s = end_.settings();
    Dice& dice = end_.dice();
    const bool quiet = end_.world().quiet();
    if (quiet || !dice.percent(s.lazy))
        for (std::uint32_t i = 0; i < kPostsPerTurn && (quiet || dice.percent(60)); i++)
            post();
    if (quiet)
        return;
    if (s.hostile && dice.percent(20))
        scribble();
    if (dice.per_mille(s.deregister))
        deregister();
    if (end_.has_context() && dice.per_mille(s.recreate))
        end_.recreate_context();
}

void QpReceiver::post_all() {
    for (std::size_t i = 0; i < places_.size(); i++)
        post();
}

// Pieces of one place in any order, so that a message is scattered over it.
std::vector<nupa::RecvSge> QpReceiver::cut(const Place& place, std::uint32_t bytes) {
    Dice& dice = end_.dice();
    const Region& region = host_.region(place.region);
    const std::uint32_t count = 1 + dice.below(end_.settings().sges_max);
    std::vector<std::uint32_t> cuts = {0, bytes};
    while (cuts.size() < count + 1)
        cuts.push_back(dice.below(bytes + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<nupa::RecvSge> sges;
    for (std::size_t i = 0; i + 1 < cuts.size(); i++)
        sges.push_back({place.addr + cuts[i], cuts[i + 1] - cuts[i], region.key});
    for (std::size_t i = sges.size(); i > 1; i--)
        std::swap(sges[i - 1], sges[dice.below(static_cast<std::uint32_t>(i))]);
    return sges;
}

void QpReceiver::post() {
    const std::vector<std::uint32_t>& lengths = end_.peer().sender().lengths();
    const auto free = std::find_if(places_.begin(), places_.end(), [&](const Place& p) {
        return !p.busy && host_.region(p.region).live;
    });
    if (end_.dead() || receives_.size() == lengths.size() || free == places_.end() || ring_.full())
        return;
    Dice& dice = end_.dice();
    const EndSettings& s = end_.settings();
    const std::uint32_t length = lengths[receives_.size()];
    std::uint32_t room = dice.percent(50) ? length : length + dice.below(free->bytes - length + 1);
    Receive r{{}, static_cast<std::size_t>(free - places_.begin()), true, Receive::State::kPosted};
    if (length > 1 && !end_.world().quiet() && dice.per_mille(s.short_receive)) {
        room = dice.below(length);
        r.good = false;
        end_.world().coverage.add(k_short_receives);
    }
    r.sges = cut(*free, room);
    if (length && !end_.world().quiet() && dice.per_mille(s.bad_key)) {
        const std::uint32_t keys[] = {Host::kForeignKey, key_of(end_, kReadOnly), Host::kNoKey};
        nupa::RecvSge& sge = r.sges[dice.below(static_cast<std::uint32_t>(r.sges.size()))];
        sge.lkey = keys[dice.below(3)];
        if (const Region* region = host_.find(sge.lkey))
            sge.addr = region->iova;
        if (dice.percent(25))
            sge = {places_.back().addr + places_.back().bytes - 1, sge.length,
                   key_of(end_, kRegions - 1)};
        r.good = false;
        end_.world().coverage.add(k_bad_keys);
    }
    free->busy = true;
    ring_.post(r.sges);
    end_.world().log.add(end_.world().now(), "end {}.{} posts receive {} place {} room {} sges {}",
                         {end_.number(), static_cast<std::uint64_t>(end_.side()), receives_.size(),
                          r.place, room, r.sges.size()});
    receives_.push_back(std::move(r));
}

void QpReceiver::poison(const Place& place) {
    const Region& region = host_.region(place.region);
    const auto value = static_cast<std::uint8_t>(end_.dice().bits());
    region.runs(place.addr, place.bytes,
                [&](std::uint64_t at, std::uint64_t n) { host_.ram.fill(at, n, value); });
}

// The application looks at what is completed and uses its buffers for something else.
void QpReceiver::poll() {
    // a hostile producer index makes the kernel complete what was never posted
    for (; polled_ < std::min(completed_, receives_.size()) && end_.dice().percent(80); polled_++) {
        Receive& r = receives_[polled_];
        r.state = Receive::State::kReturned;
        poison(places_[r.place]);
        places_[r.place].busy = false;
    }
}

void QpReceiver::flush() {
    for (Receive& r : receives_)
        r.state = Receive::State::kReturned;
    for (Place& p : places_) {
        poison(p);
        p.busy = false;
    }
}

// Nonsense in shared memory: only its own process may suffer.
void QpReceiver::scribble() {
    Dice& dice = end_.dice();
    end_.world().coverage.add(k_hostile_writes);
    if (dice.percent(30)) {
        ring_.scribble_producer(static_cast<std::uint32_t>(dice.bits()));
        return;
    }
    const Region& foreign = *host_.find(Host::kForeignKey);
    const std::uint32_t values[] = {static_cast<std::uint32_t>(dice.bits()),
                                    dice.below(40),
                                    0xffffffff,
                                    Host::kForeignKey,
                                    static_cast<std::uint32_t>(foreign.iova),
                                    key_of(end_, 0),
                                    key_of(end_.peer(), 0)};
    ring_.scribble_element(dice.below(8), dice.below(40), values[dice.below(7)]);
}

// One region goes while its buffers are posted: from here on it is the application's alone.
void QpReceiver::deregister() {
    const Region& region = host_.region(places_.back().region);
    if (!region.live)
        return;
    const std::uint32_t key = region.key;
    end_.world().coverage.add(k_deregistered);
    end_.world().log.add(end_.world().now(), "end {}.{} deregisters key {}",
                         {end_.number(), static_cast<std::uint64_t>(end_.side()), key});
    host_.deregister(key);
    for (Place& p : places_)
        if (host_.region(p.region).key == key)
            poison(p);
    for (Receive& r : receives_)
        for (const nupa::RecvSge& sge : r.sges)
            r.good &= sge.lkey != key;
}

// ---- what may be written where ----

bool QpReceiver::open(std::size_t index) const noexcept {
    return index < receives_.size() && receives_[index].state == Receive::State::kPosted &&
           index >= completed_;
}

std::vector<QpReceiver::Run> QpReceiver::place(std::size_t index, std::uint32_t offset,
                                               std::uint32_t bytes) const {
    std::vector<Run> runs;
    for (const nupa::RecvSge& sge : receives_[index].sges) {
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::uint32_t n = std::min(bytes, sge.length - offset);
        const Region* region = host_.find(sge.lkey);
        if (n == 0 || !region || !region->allows(pd(), sge.addr + offset, n))
            break;
        region->runs(sge.addr + offset, n, [&](std::uint64_t at, std::uint64_t run) {
            runs.push_back({at, run});
        });
        offset = 0;
        bytes -= n;
    }
    return runs;
}

bool QpReceiver::inside_open(std::uint64_t addr, std::uint64_t bytes) const {
    for (std::size_t i = completed_; i < receives_.size(); i++) {
        if (!open(i))
            continue;
        const std::vector<Run> runs = place(i, 0, UINT32_MAX);
        // A write may span runs that follow each other in memory.
        for (const Run& r : runs)
            if (addr >= r.addr && addr - r.addr < r.bytes) {
                const std::uint64_t n = std::min(bytes, r.bytes - (addr - r.addr));
                if (n == bytes)
                    return true;
                addr += n, bytes -= n;
            }
    }
    return false;
}

// ---- kernel: rx.c around rxmsg.c ----

void QpReceiver::run() {
    const Skb* skb;
    while (!end_.dead() && (skb = end_.tcp().front())) {
        const std::uint32_t off = end_.tcp().copied() - skb->at;
        const std::uint32_t bytes = step(*skb, off);
        if (!bytes)
            return;
        end_.tcp().read(bytes);
        ring_.consumed(end_.peer().sender().stream.seq(end_.tcp().copied()));
    }
}

std::uint32_t QpReceiver::step(const Skb& skb, std::uint32_t off) {
    const tqp_skb_map* map = skb.mapped ? &skb.map : nullptr;
    if (!msg_.active && !map && !started_)
        return 0;
    if (!msg_.active) {
        const std::uint32_t seq = end_.peer().sender().stream.seq(end_.tcp().copied());
        if (!tqp_rx_msg_begin(&msg_, map, seq, &next_)) {
            end_.fail(k_protocol_errors);
            return 0;
        }
        started_ = true;
        end_.rtr_seen_ = end_.rtr_acked_ = true;
    }
    if (!tqp_rx_msg_learn(&msg_, map, &next_) || msg_.kind != TQP_MSG_SEND) {
        end_.fail(k_protocol_errors);
        return 0;
    }
    if (!have_wqe_) {
        if (!ring_.posted()) {
            end_.world().coverage.add(k_stalls);
            return 0;
        }
        wqe_ = ring_.take();
        have_wqe_ = true;
    }
    const std::uint32_t bytes = tqp_rx_msg_share(&msg_, skb.len - off);
    if (!take(skb, off, bytes))
        return 0;
    if (!tqp_rx_msg_take(&msg_, bytes))
        return bytes;
    if (!msg_.opcode_known) {
        end_.fail(k_protocol_errors);
        return 0;
    }
    complete();
    return bytes;
}

bool QpReceiver::take(const Skb& skb, std::uint32_t off, std::uint32_t bytes) {
    if (tqp_rx_msg_empty(&msg_))
        return true;
    const std::uint64_t room = std::accumulate(
        wqe_.begin(), wqe_.end(), std::uint64_t{0},
        [](std::uint64_t sum, const nupa::RecvSge& sge) { return sum + sge.length; });
    if (std::uint64_t{msg_.done} + bytes > room) {
        reject(k_length_errors);
        return false;
    }
    if (!skb.decrypted && !copy(skb.data.data() + off, msg_.done, bytes)) {
        reject(k_protection_errors);
        return false;
    }
    (skb.decrypted ? placed_bytes_ : copied_bytes_) += bytes;
    end_.world().coverage.add(skb.decrypted ? k_placed_bytes : k_copied_bytes, bytes);
    return true;
}

// As place.c: the keys are looked up for each copy.
bool QpReceiver::copy(const std::byte* from, std::uint32_t at, std::uint32_t bytes) {
    for (const nupa::RecvSge& sge : wqe_) {
        if (!bytes)
            break;
        if (at >= sge.length) {
            at -= sge.length;
            continue;
        }
        const std::uint32_t n = std::min(bytes, sge.length - at);
        const Region* region = host_.find(sge.lkey);
        if (!region || !region->allows(pd(), sge.addr + at, n))
            return false;
        region->runs(sge.addr + at, n, [&](std::uint64_t to, std::uint64_t run) {
            host_.ram.store(to, {from, run});
            from += run;
        });
        at = 0;
        bytes -= n;
    }
    return bytes == 0;
}

// The receive completes with an error while the switch's context still lives.
void QpReceiver::reject(Counter why) {
    consume();
    end_.fail(why);
}

void QpReceiver::complete() {
    check_message(completed_);
    consume();
}

void QpReceiver::consume() {
    tqp_rx_msg_count(&msg_, &next_);
    ring_.complete();
    completed_++;
    msg_.active = false;
    have_wqe_ = false;
    if (completed_ <= receives_.size())
        receives_[completed_ - 1].state = Receive::State::kCompleted;
}

void QpReceiver::check_message(std::size_t index) {
    World& world = end_.world();
    const Stream& stream = end_.peer().sender().stream;
    world.coverage.add(k_messages);
    world.log.add(
        world.now(), "end {}.{} completes receive {} msn {} bytes {}",
        {end_.number(), static_cast<std::uint64_t>(end_.side()), index, msg_.msn, msg_.done});
    if (end_.settings().hostile || end_.rules_broken_)
        return;
    const std::uint64_t side = static_cast<std::uint64_t>(end_.side());
    if (index >= stream.messages.size() || index >= receives_.size())
        world.violation("end {}.{} completes message {} that was never sent or has no receive",
                        {end_.number(), side, index});
    const Message& m = stream.messages[index];
    if (msg_.msn != m.msn || msg_.length != m.length || msg_.done != m.length ||
        msg_.opcode != m.opcode || (m.opcode == TCP_BTH_OP_SEND_ONLY_IMM && msg_.ext4 != m.imm))
        world.violation("end {}.{} message {} completes with a wrong length, opcode or immediate",
                        {end_.number(), side, index});
    if (m.length == 0)
        world.coverage.add(k_empty_messages);
    if (m.opcode == TCP_BTH_OP_SEND_ONLY_IMM)
        world.coverage.add(k_immediates);
    std::uint64_t sent = 0;
    for (std::size_t i = 0; i <= index; i++)
        sent += stream.messages[i].length;
    if (placed_bytes_ + copied_bytes_ != sent)
        world.violation("end {}.{} message {}: placed {} + copied {} is not delivered {}",
                        {end_.number(), side, index, placed_bytes_, copied_bytes_, sent});
    if (!receives_[index].good)
        return;  // part of its buffer is the application's again
    const std::byte* expected = stream.bytes.data() + m.at;
    for (const Run& run : place(index, 0, m.length)) {
        if (std::memcmp(host_.ram.at(run.addr), expected, run.bytes) != 0)
            world.violation("end {}.{} message {} arrived with wrong bytes",
                            {end_.number(), side, index});
        expected += run.bytes;
    }
    if (expected != stream.bytes.data() + m.at + m.length)
        world.violation("end {}.{} message {} is longer than its buffer",
                        {end_.number(), side, index});
}

}  // namespace sim
