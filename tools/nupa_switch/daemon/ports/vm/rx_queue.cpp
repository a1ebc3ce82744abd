// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/rx_queue.hpp"

#include <algorithm>
#include <cstring>

#include "engine/endian.hpp"
#include "event/clock.hpp"
#include "ivshmem/shared_field.hpp"
#include "ports/vm/tx_queue.hpp"

namespace nupa::daemon {
namespace {

constexpr uint16_t kChecksumFlags = NUPA_RX_F_CSUM_OK | NUPA_RX_F_CSUM_BAD;

}  // namespace

nupa_admin_status RxQueue::check(const HostMemory& memory, const nupa_cmd_queue& cmd) noexcept {
    if (!valid_ring_entries(cmd.comp_entries) || cmd.flags & ~NUPA_RXQ_F_STRICT_SPLIT)
        return NUPA_E_INVALID;
    if (nupa_admin_status status = RxBuffers::check(memory, cmd); status != NUPA_OK)
        return status;
    if (!memory.at(cmd.comp_addr, uint64_t{cmd.comp_entries} * sizeof(nupa_rx_comp)) ||
        !memory.at(cmd.slot_addr, uint64_t{cmd.comp_entries} * NUPA_RX_SLOT_BYTES))
        return NUPA_E_ADDRESS;
    return NUPA_OK;
}

RxQueue::RxQueue(const HostMemory& memory, nupa_rxq_ctl& ctl, const nupa_cmd_queue& cmd,
                 PortStats& stats)
    : ctl_(&ctl),
      stats_(stats),
      buffers_(memory, ctl, cmd),
      comps_(memory.at(cmd.comp_addr, uint64_t{cmd.comp_entries} * sizeof(nupa_rx_comp))),
      slots_(memory.at(cmd.slot_addr, uint64_t{cmd.comp_entries} * NUPA_RX_SLOT_BYTES)),
      comp_entries_(cmd.comp_entries),
      strict_split_(cmd.flags & NUPA_RXQ_F_STRICT_SPLIT),
      runs_(kRunsMax) {
    in_vain_.reserve(kQuietMax);
    for (size_t i = 0; i < kRunsMax; i++) {
        open_[i] = static_cast<uint8_t>(i);
        runs_[i].more.reserve(kRunPiecesMax);
        runs_[i].owned.reserve(kRunPiecesMax);
    }
    store_release(ctl_->signalled, 0u);
    store_release(ctl_->hurry, 0u);
    store_release(ctl_->comp_prod, 0u);
}

RxQueue::Result RxQueue::broken(const char* reason) noexcept {
    reason_ = reason;
    return Result::kBroken;
}

void RxQueue::set_mode(const nupa_cmd_rx_mode& mode) noexcept {
    checksums_ = mode.flags & NUPA_RX_MODE_CSUM;
    hold_ns_ = mode.hold_us * kNsPerUs;
    // A merged packet has no valid checksum, so merging needs a host that asks for none.
    const bool merge = checksums_ && mode.flags & NUPA_RX_MODE_GRO;
    for (Run& run : runs_)
        run.merger.configure(buffers_.buf_bytes(), merge, mode.run4_max_bytes);
}

RxQueue::Run* RxQueue::find(const Packet& packet) noexcept {
    for (size_t i = 0; i < open_count_; i++) {
        Run& run = runs_[open_[i]];
        if (!run.merger.same_flow(packet))
            continue;
        std::rotate(open_.begin(), open_.begin() + static_cast<long>(i),
                    open_.begin() + static_cast<long>(i) + 1);
        return &run;
    }
    return nullptr;
}

// The run longest without a segment makes place for a new one.
RxQueue::Run* RxQueue::open() noexcept {
    if (open_count_ == kRunsMax && finish(runs_[open_[kRunsMax - 1]]) != Result::kTaken)
        return nullptr;
    std::rotate(open_.begin(), open_.begin() + static_cast<long>(open_count_),
                open_.begin() + static_cast<long>(open_count_) + 1);
    open_count_++;
    return &runs_[open_[0]];
}

// Every open run owns one completion already.
bool RxQueue::completion_free() const noexcept {
    return comp_prod_ - comp_cons_seen_ + open_count_ < comp_entries_;
}

RxQueue::Result RxQueue::room_for(const Packet& packet) noexcept {
    if (completion_free())
        return Result::kTaken;
    comp_cons_seen_ = load_acquire(ctl_->comp_cons);
    if (comp_prod_ - comp_cons_seen_ > comp_entries_)
        return broken("receive completion index beyond the ring");
    return completion_free() || find(packet) ? Result::kTaken : Result::kNoBuffer;
}

// A packet that was not merged comes whole in its header slot if it fits.
bool RxQueue::in_slot(const Run& run, uint32_t payload_bytes, bool single) const noexcept {
    return single && !run.strict && run.first.at.header_bytes + payload_bytes <= NUPA_RX_SLOT_BYTES;
}

RxQueue::Result RxQueue::hold_buffers(Run& run, uint32_t payload_bytes, bool single) noexcept {
    if (run.placed || in_slot(run, payload_bytes, single))
        return Result::kTaken;
    switch (buffers_.hold(run.held, payload_bytes)) {
        case RxBuffers::Room::kThere:
            return Result::kTaken;
        case RxBuffers::Room::kNone:
            return Result::kNoBuffer;
        default:
            return broken("fill producer index beyond the ring");
    }
}

uint32_t RxQueue::span(const Packet& burst, bool placed) noexcept {
    const uint32_t span = runs_.front().merger.span(burst, placed);
    return placed || !span ? span : buffers_.span(burst.payload.bytes(), span, burst.mss);
}

RxQueue::Result RxQueue::add(Packet& packet, const Decision& decision,
                             const QueueChoice& choice) noexcept {
    Run* run = find(packet);
    if (run && (!run->merger.fits(packet, decision) ||
                run->more.size() + kPayloadSpansMax > kRunPiecesMax)) {
        if (Result done = finish(*run); done != Result::kTaken)
            return done;
        run = nullptr;
    }
    if (run) {
        const Result joined = append(*run, packet, decision);
        if (joined != Result::kNoBuffer)
            return joined;
        // Long buffers have run out: what it has needs no more of them, and short ones may do.
        if (Result done = finish(*run); done != Result::kTaken)
            return done;
    }
    if (!completion_free())
        return Result::kNoBuffer;
    run = open();
    return run ? start(*run, packet, decision, choice) : Result::kBroken;
}

RxQueue::Result RxQueue::start(Run& run, Packet& packet, const Decision& decision,
                               const QueueChoice& choice) noexcept {
    run.choice = choice;
    run.placed = decision.placed();
    run.may_wait = decision.may_wait;
    run.quiet = decision.quiet;
    run.patience = decision.patience;
    run.later = decision.later;
    run.wakes = decision.wakes;
    run.cq = decision.cq;
    run.grown = true;
    run.due_ns = kNever;
    run.due_max_ns = 0;
    run.strict = strict_split_ && packet.at.l4 == L4::kTcp;
    run.merger.start(packet, decision);
    run.first = std::move(packet);
    if (Result room = hold_buffers(run, run.first.payload.bytes(), !run.first.mss);
        room != Result::kTaken) {
        run.merger.finish();
        close(run);
        return room;
    }
    stats_.add(NUPA_STAT_rx_merged, run.first.segments() - 1);
    return run.merger.closed() || run.wakes ? finish(run) : Result::kTaken;
}

RxQueue::Result RxQueue::append(Run& run, Packet& packet, const Decision& decision) noexcept {
    const uint32_t bytes = run.merger.payload_bytes() + packet.payload.bytes();
    if (Result room = hold_buffers(run, bytes, false); room != Result::kTaken)
        return room;
    run.merger.append(packet, decision);
    run.may_wait = decision.may_wait;
    run.quiet = run.quiet && decision.quiet;
    run.patience = std::min(run.patience, decision.patience);
    run.later = run.later && decision.later;
    run.wakes = decision.wakes;
    run.cq = decision.cq;
    run.grown = true;
    stats_.add(NUPA_STAT_rx_merged, packet.segments());
    if (!run.placed) {
        // Room for both was reserved when the queue was made.
        for (const Bytes& piece : packet.payload.pieces())
            run.more.push_back(piece);
        if (packet.owned)
            run.owned.push_back(std::move(packet.owned));
    }
    return run.merger.closed() || run.wakes ? finish(run) : Result::kTaken;
}

// The run's slot is free again.
void RxQueue::close(Run& run) noexcept {
    buffers_.let_go(run.held);
    run.first.owned.reset();
    run.more.clear();
    run.owned.clear();
    const auto index = static_cast<uint8_t>(&run - runs_.data());
    auto at = std::find(open_.begin(), open_.begin() + static_cast<long>(open_count_), index);
    open_count_--;
    std::rotate(at, at + 1, open_.begin() + static_cast<long>(open_count_) + 1);
}

RxQueue::Result RxQueue::finish(Run& run) noexcept {
    const Merged& merged = run.merger.finish();
    const bool single = merged.gso_segs <= 1;
    std::byte* slot = slots_ + (comp_prod_ & (comp_entries_ - 1)) * size_t{NUPA_RX_SLOT_BYTES};
    if (single)
        run.first.fill_checksums();  // a merged one has no valid checksum, by the ABI
    std::memcpy(slot, single ? run.first.header.data() : merged.header.data(), merged.header_bytes);
    uint32_t slot_payload = 0;
    Result result = Result::kTaken;
    if (!run.placed && in_slot(run, merged.payload_bytes, single)) {
        buffers_.let_go(run.held);
        run.first.payload.copy_to(slot + merged.header_bytes);
        slot_payload = merged.payload_bytes;
    } else if (!run.placed) {
        result = write_payload(run);
    }
    if (result == Result::kTaken)
        write_completion(run, merged, slot_payload);
    close(run);
    return result;
}

void RxQueue::write_completion(const Run& run, const Merged& merged,
                               uint32_t slot_payload) noexcept {
    nupa_rx_comp comp{};
    comp.flags = merged.flags;
    if (!checksums_)
        comp.flags &= static_cast<uint16_t>(~kChecksumFlags);
    if (run.choice.hash_l4)
        comp.flags |= NUPA_RX_F_HASH_L4;
    comp.bufs = static_cast<uint16_t>(run.held.shorts);
    comp.long_bufs = static_cast<uint16_t>(run.held.longs);
    comp.header_bytes = static_cast<uint16_t>(merged.header_bytes + slot_payload);
    comp.gso_size = merged.gso_size;
    comp.gso_segs = merged.gso_segs;
    comp.payload_bytes = merged.payload_bytes - slot_payload;
    comp.hash = run.choice.hash;
    comp.qpn = merged.qpn;
    if (run.wakes) {
        comp.flags |= NUPA_RX_F_WAKE;
        comp.cq = run.cq;
    }
    std::memcpy(comps_ + (comp_prod_ & (comp_entries_ - 1)) * sizeof(comp), &comp, sizeof(comp));
    comp_prod_++;
    completed(run);
    stats_.add(NUPA_STAT_rx_packets);
    stats_.add(NUPA_STAT_rx_bytes, merged.header_bytes + merged.payload_bytes);
}

RxQueue::Result RxQueue::write_payload(const Run& run) noexcept {
    RxBuffers::Writer writer(buffers_, run.held);
    for (const Bytes& piece : run.first.payload.pieces())
        if (!writer.write(piece))
            return broken("fill buffer outside host memory");
    for (const Bytes& piece : run.more)
        if (!writer.write(piece))
            return broken("fill buffer outside host memory");
    return Result::kTaken;
}

RxQueue::Result RxQueue::flush() noexcept {
    urgent_ = true;
    while (open_count_)
        if (Result done = finish(runs_[open_[open_count_ - 1]]); done != Result::kTaken)
            return done;
    return Result::kTaken;
}

// The checksum is filled in while the payload can still be read.
bool RxQueue::hold(Run& run, uint64_t now_ns) noexcept {
    if (!hold_ns_ || !run.placed || !run.may_wait)
        return false;
    if (!run.due_max_ns) {
        run.due_max_ns = now_ns + kHoldTotal * hold_ns_;
        if (!run.first.mss)
            run.first.fill_checksums();
        run.first.payload.clear();
        run.first.owned.reset();
    }
    if (run.grown)
        run.due_ns = std::min(now_ns + hold_ns_, run.due_max_ns);
    run.grown = false;
    return now_ns < run.due_ns;
}

// The host knows of all before completion @index.
void RxQueue::told(uint32_t index) noexcept {
    signalled_ = index;
    interrupt_due_ns_ = kNever;
    patience_ = 0;
    quiet_qpn_ = 0;
}

// Has it looked at them by itself?
bool RxQueue::heard(uint32_t index) noexcept {
    if (load_acquire(ctl_->comp_cons) != index)
        return false;
    told(index);
    return true;
}

void RxQueue::completed(const Run& run) noexcept {
    heard(comp_prod_ - 1);
    const bool room = comp_prod_ - signalled_ < std::min(kQuietMax, comp_entries_ / 4);
    const bool quiet = hold_ns_ && room && run.quiet;
    quiet_[(comp_prod_ - 1) % kQuietMax] = {quiet ? run.merger.qpn() : 0, run.patience};
    if (!quiet || !run.later)
        hurry_ = comp_prod_;
    if (quiet) {
        stats_.add(NUPA_STAT_rx_quiet);
        patience_ = patience_ ? std::min(patience_, run.patience) : run.patience;
        wake_ = wake_ || run.wakes;
    } else if (hold_ns_ && room && run.placed && run.may_wait) {
        quiet_qpn_ = run.merger.qpn();
    } else {
        urgent_ = true;
    }
}

bool RxQueue::waits_for(uint32_t qpn) const noexcept {
    return std::any_of(open_.begin(), open_.begin() + static_cast<long>(open_count_),
                       [&](uint8_t i) { return runs_[i].merger.qpn() == qpn; });
}

RxQueue::Result RxQueue::turn(uint64_t now_ns) noexcept {
    for (size_t i = open_count_; i-- > 0;) {
        Run& run = runs_[open_[i]];
        if (hold(run, now_ns))
            continue;
        if (Result done = finish(run); done != Result::kTaken)
            return done;
    }
    if (comp_prod_ != signalled_ && !heard(comp_prod_))
        interrupt_due_ns_ = std::min(interrupt_due_ns_, now_ns + interrupt_in_ns());
    return Result::kTaken;
}

// Of what is quiet, the least; where something else waits, too, no more than a hold time.
uint32_t RxQueue::patience() const noexcept {
    return quiet_qpn_ ? std::min<uint32_t>(patience_, kQuietShare) : patience_;
}

uint64_t RxQueue::interrupt_in_ns() const noexcept {
    const uint64_t least = hold_ns_ / kQuietShare;
    return patience_ ? std::max(least, std::min(least * patience(), kQuietMostNs)) : hold_ns_;
}

std::optional<RxQueue::Result> RxQueue::expire(uint64_t now_ns, uint32_t& silent_qpn) noexcept {
    in_vain_.clear();
    for (size_t i = 0; i < open_count_; i++) {
        Run& run = runs_[open_[i]];
        if (now_ns < run.due_ns)
            continue;
        silent_qpn = run.due_ns < run.due_max_ns ? run.merger.qpn() : 0;
        urgent_ = true;
        return finish(run);
    }
    if (now_ns >= interrupt_due_ns_ && !heard(comp_prod_)) {
        note_in_vain();
        interrupt_due_ns_ = kNever;
        silent_qpn = waits_for(quiet_qpn_) ? 0 : quiet_qpn_;
        urgent_ = true;
        return Result::kTaken;
    }
    return std::nullopt;
}

// Who has more patience than the one that the interrupt is for has not waited in vain.  Room for
// them was reserved when the queue was made.
void RxQueue::note_in_vain() noexcept {
    const uint32_t waiting = std::min(comp_prod_ - load_acquire(ctl_->comp_cons), kQuietMax);
    const uint32_t unseen = std::min(comp_prod_ - load_relaxed(ctl_->seen), waiting);
    for (uint32_t i = comp_prod_ - unseen; i != comp_prod_; i++)
        if (const QuietCompletion& quiet = quiet_[i % kQuietMax];
            quiet.qpn && quiet.patience <= patience() &&
            std::find(in_vain_.begin(), in_vain_.end(), quiet.qpn) == in_vain_.end())
            in_vain_.push_back(quiet.qpn);
}

uint64_t RxQueue::due_ns() const noexcept {
    uint64_t due = interrupt_due_ns_;
    for (size_t i = 0; i < open_count_; i++)
        due = std::min(due, runs_[open_[i]].due_ns);
    return due;
}

bool RxQueue::publish() noexcept {
    if (urgent_)  // before what it is about: who finds that looks at this
        store_release(ctl_->signalled, comp_prod_);
    if (published_ != comp_prod_) {
        published_ = comp_prod_;
        store_release(ctl_->hurry, hurry_);
        buffers_.publish();
        store_release(ctl_->comp_prod, comp_prod_);
    }
    if (!urgent_ && !wake_)
        return false;
    const uint32_t old = signalled_;
    if (urgent_)
        told(comp_prod_);
    urgent_ = wake_ = false;
    full_fence();
    return old != comp_prod_ && nupa_need_event(load_relaxed(ctl_->irq_event), comp_prod_, old);
}

}  // namespace nupa::daemon
