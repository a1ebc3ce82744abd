// SPDX-License-Identifier: BSD-3-Clause
// The receiving end of eager messages: into whose receive each goes, and when they begin and end.
// A buffer is posted, then held, then posted again and its credit owed; after a stop those that are
// still posted are skipped by the sender, since receives that are announced come behind them.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "nccl/plugin/log.hpp"
#include "nccl/plugin/receive_comm.hpp"

namespace tcpqp::nccl {

// Groups and several tags keep their announcements: a message that must wait for another tag's
// would hold buffers that the other one needs.
void ReceiveComm::count_short(const Slot& slot) noexcept {
    const bool is_short = slot.count == 1 && slot.bytes[0] <= kEagerBytes;
    if (!is_short || std::exchange(short_tag_, slot.receives[0].tag) != slot.receives[0].tag)
        short_ones_ = 0;
    short_ones_ += is_short ? 1 : 0;
}

void ReceiveComm::received_eager(const tcpqp_completion& completion) {
    eager_posted_--;
    const auto buffer = static_cast<uint32_t>(completion.id);
    if ((completion.flags & TCPQP_F_IMM) == 0 && completion.length == 0) {
        if (skips_ != 0)
            skips_--;
        else if (mode_ != Mode::kAnnounced)
            stopped();
        else
            static_cast<void>(fail(kRemoteError, "an end of eager messages came twice"));
        return;
    }
    if (mode_ == Mode::kAnnounced || (completion.flags & TCPQP_F_IMM) == 0 ||
        completion.imm != immediate_of(eager_sequence_, 0)) {
        static_cast<void>(fail(kRemoteError, "an eager message came that was not granted"));
        return;
    }
    eager_sequence_++;
    held_.push_back({buffer, completion.length});
    serve_waiting();
}

void ReceiveComm::stopped() {
    mode_ = Mode::kAnnounced;
    recall_due_ = false;
    short_ones_ = 0;
    skips_ = eager_posted_;
    skips_told_ = skips_ == 0;
    for (Slot* slot : waiting_)
        if (announce(*slot) != kSuccess)
            return;
    waiting_.clear();
}

bool ReceiveComm::serve(Slot& slot, const Held& held) noexcept {
    if (result() != kSuccess)
        return false;
    uint32_t entry = 0;
    while (entry < slot.count &&
           ((slot.taken >> entry & 1) != 0 || slot.receives[entry].tag != eager_tag_))
        entry++;
    if (entry == slot.count)
        return false;
    const Receive& receive = slot.receives[entry];
    const size_t bytes = std::min(held.bytes, receive.bytes);
    if (bytes < held.bytes && !std::exchange(told_of_truncation_, true))
        warn(
            "a send of %zu bytes meets a receive of %zu: only these are kept, here and from now on",
            held.bytes, receive.bytes);
    const std::byte* from = eager_.data() + held.buffer * kEagerBytes;
    if (receive.memory->is_device_only && bytes != 0) {
        static_cast<void>(
            fail(kInvalidUsage,
                 "a GPU's memory was registered after short messages into host memory "
                 "had begun, and one of these is for it"));
        return false;
    }
    if (slot.polled)
        copy_in_order(static_cast<std::byte*>(receive.data), from, bytes);
    else if (bytes != 0)
        std::memcpy(receive.data, from, bytes);
    slot.bytes[entry] = bytes;
    slot.taken |= static_cast<uint8_t>(1u << entry);
    finish_part(slot, entry);
    return true;
}

void ReceiveComm::serve_held(Slot& slot) noexcept {
    while (!held_.empty() && serve(slot, held_.front()))
        held_.erase(held_.begin());
}

void ReceiveComm::serve_waiting() {
    while (!held_.empty()) {
        const Held held = held_.front();
        const auto taker = std::find_if(waiting_.begin(), waiting_.end(),
                                        [&](Slot* slot) { return serve(*slot, held); });
        if (taker == waiting_.end())
            return;
        if ((*taker)->left == 0)
            waiting_.erase(taker);
        held_.erase(held_.begin());
        if (mode_ != Mode::kEager)
            continue;
        post_buffers({&held.buffer, 1});
        owed_++;
    }
}

// @credits: give so many back.  A message that has come is not kept waiting for that.
void ReceiveComm::say_what_is_due(uint32_t credits) {
    if (mode_ == Mode::kAnnounced) {
        if (short_ones_ >= kEagerAfter && held_.empty() && skips_ == 0)
            grant();
        return;
    }
    if (mode_ == Mode::kEager && owed_ >= credits && say(Kind::kCredit, owed_))
        owed_ = 0;
    if (mode_ == Mode::kEager && recall_due_ && say(Kind::kRecall, 0))
        mode_ = Mode::kRecalling;
}

void ReceiveComm::grant() {
    short_ones_ = 0;
    // no CPU copies what is for a GPU
    if (has_device_memory() || eager_posted_ != 0 || free_note() == nullptr || !make_buffers())
        return;
    std::array<uint32_t, kEagerBuffers> all;
    std::iota(all.begin(), all.end(), 0u);
    eager_tag_ = short_tag_;
    post_buffers(all);
    say(Kind::kGrant, kEagerCredits);
    mode_ = Mode::kEager;
    owed_ = 0;
    recall_due_ = false;
}

// Without them all goes on as before.
bool ReceiveComm::make_buffers() noexcept {
    if (!eager_.empty())
        return true;
    try {
        eager_.resize(kEagerBuffers * kEagerBytes);
        if (make_region(0, notes_.data(), sizeof(notes_), notes_region_) == 0 &&
            make_region(0, eager_.data(), eager_.size(), eager_region_) == 0)
            return true;
    } catch (const std::bad_alloc&) {
    }
    eager_.clear();
    return false;
}

void ReceiveComm::post_buffers(std::span<const uint32_t> buffers) noexcept {
    std::array<tcpqp_work, kEagerBuffers> works;
    for (size_t i = 0; i < buffers.size(); i++) {
        works[i] = {};
        works[i].id = kEagerId | buffers[i];
        works[i].addr = eager_.data() + buffers[i] * kEagerBytes;
        works[i].length = kEagerBytes;
        works[i].flags = TCPQP_F_MORE;  // the note that says so rings
        works[i].mr = eager_region_.get();
    }
    eager_posted_ += static_cast<uint32_t>(buffers.size());
    post_aside(0, std::span(works).first(buffers.size()), false);
}

ReceiveComm::Note* ReceiveComm::free_note() noexcept {
    const auto is_free = [](const Note& note) { return !note.busy; };
    const auto note = std::find_if(notes_.begin(), notes_.end(), is_free);
    return note != notes_.end() ? &*note : nullptr;
}

// False: all notes are still on their way; later.
bool ReceiveComm::say(Kind kind, uint32_t messages) noexcept {
    Note* note = free_note();
    if (note == nullptr)
        return false;
    Announce& a = note->said;
    a = {};
    a.sequence = sequence_++;
    a.kind = kind;
    a.count = kind == Kind::kRecall ? 0 : 1;
    a.receives[0] = {messages, eager_tag_};
    tcpqp_work work{};
    work.id = kNoteId | static_cast<uint64_t>(note - notes_.data());
    work.addr = &a;
    work.length = static_cast<uint32_t>(announce_bytes(a.count));
    work.mr = notes_region_.get();
    note->busy = true;
    post_aside(0, {&work, 1}, true);
    return true;
}

}  // namespace tcpqp::nccl
