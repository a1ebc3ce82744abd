// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/receive_comm.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "nccl/plugin/log.hpp"

namespace tcpqp::nccl {
namespace {

constexpr unsigned kEntryBits = 3;
static_assert(1 << kEntryBits == kGroupMax);

}  // namespace

void copy_in_order(std::byte* to, const std::byte* from, size_t bytes) noexcept {
    size_t done = 0;
    if (reinterpret_cast<uintptr_t>(to) % sizeof(uint64_t) == 0)
        for (; bytes - done >= sizeof(uint64_t); done += sizeof(uint64_t)) {
            uint64_t word;
            std::memcpy(&word, from + done, sizeof(word));
            std::atomic_ref(*reinterpret_cast<uint64_t*>(to + done))
                .store(word, std::memory_order_release);
        }
    for (; done < bytes; done++)
        std::atomic_ref(reinterpret_cast<unsigned char&>(to[done]))
            .store(static_cast<unsigned char>(from[done]), std::memory_order_release);
}

ReceiveComm::ReceiveComm(std::vector<Rail> rails) : Comm(std::move(rails)), announces_(kGroupsMax) {
    held_.reserve(kEagerBuffers);
    waiting_.reserve(kGroupsMax);
}

ReceiveComm::~ReceiveComm() {
    end_rails();
    announces_region_.reset();
    eager_region_.reset();
    notes_region_.reset();
    for (Bounce& bounce : bounces_)
        bounce.regions = {};
}

Depth ReceiveComm::depth(uint32_t rail) noexcept {
    if (rail != 0)
        return {.sends = 1, .receives = kSendsMax};
    return {.sends = kGroupsMax + kNotesMax, .receives = kSendsMax + kEagerBuffers};
}

Result ReceiveComm::start() {
    if (make_region(0, announces_.data(), announces_.size() * sizeof(Announce),
                    announces_region_) != 0)
        return fail(kSystemError, "cannot register memory; raise `ulimit -l`");
    return kSuccess;
}

ReceiveComm::Slot* ReceiveComm::free_slot() noexcept {
    for (uint32_t i = 0; i < kGroupsMax; i++) {
        Slot& slot = slots_[(next_ + i) % kGroupsMax];
        if (slot.count != 0 || slot.announcing)
            continue;
        next_ = (next_ + i + 1) % kGroupsMax;
        return &slot;
    }
    return nullptr;
}

Result ReceiveComm::prepare_bounce(Bounce& bounce, size_t bytes) {
    const size_t words = (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
    if (bounce.words.size() >= words)
        return kSuccess;
    bounce.regions = {};
    try {
        bounce.words.assign(words, 0);
    } catch (const std::bad_alloc&) {
        return fail(kSystemError, "no memory for a polled receive of %zu bytes", bytes);
    }
    for (uint32_t i = 0; i < rails_.size(); i++)
        if (make_region(i, bounce.words.data(), words * sizeof(uint64_t), bounce.regions[i]) != 0)
            return fail(kSystemError, "cannot register memory; raise `ulimit -l`");
    return kSuccess;
}

Result ReceiveComm::announce(Slot& slot) {
    slot.bounced = slot.polled && slot.count == 1;
    slot.sequence = sequence_++;
    if (slot.bounced)
        if (const Result result = prepare_bounce(bounces_[index(slot)], slot.receives[0].bytes);
            result != kSuccess)
            return result;
    if (const Result result = post_receives(slot); result != kSuccess)
        return result;
    return send_announce(slot);
}

Result ReceiveComm::post_receives(Slot& slot) {
    std::array<std::array<tcpqp_work, kGroupMax>, kRailsMax> works;
    std::array<size_t, kRailsMax> count{};
    const auto rails = static_cast<uint32_t>(rails_.size());
    Bounce& bounce = bounces_[index(slot)];
    for (uint32_t entry = 0; entry < slot.count; entry++) {
        if ((slot.taken >> entry & 1) != 0)
            continue;
        const Receive& receive = slot.receives[entry];
        const size_t bytes = std::min(receive.bytes, kMessageMaxBytes);
        const Striping stripes(bytes, rails, slot.sequence);
        std::byte* base = slot.bounced ? reinterpret_cast<std::byte*>(bounce.words.data())
                                       : static_cast<std::byte*>(receive.data);
        for (uint32_t i = 0; i < stripes.count(); i++) {
            const uint32_t rail = stripes.first() + i;
            const Stripe part = stripes.at(i, bytes);
            tcpqp_work& work = works[rail][count[rail]++];
            work = {};
            work.id = index(slot) << kEntryBits | entry;
            work.addr = base + part.begin;
            work.length = static_cast<uint32_t>(part.end - part.begin);
            work.flags = rail == 0 ? TCPQP_F_MORE : 0;  // the announcement rings for rail 0
            work.mr = slot.bounced ? bounce.regions[rail].get() : region(receive.memory, rail);
        }
        // it was one part until now
        slot.left += stripes.count() - 1;
        receive.memory->users += stripes.count() - 1;
    }
    for (uint32_t rail = rails; rail-- > 0;)
        if (const Result result = post(rail, std::span(works[rail]).first(count[rail]), false);
            result != kSuccess)
            return result;
    return kSuccess;
}

Result ReceiveComm::send_announce(Slot& slot) {
    Announce& a = announces_[index(slot)];
    a = {};
    a.sequence = slot.sequence;
    a.count = static_cast<uint8_t>(slot.count);
    a.taken = slot.taken;
    a.skips = skips_told_ ? 0 : static_cast<uint8_t>(skips_);
    skips_told_ = true;
    for (size_t i = 0; i < slot.count; i++)
        a.receives[i] = {static_cast<uint32_t>(std::min(slot.receives[i].bytes, kMessageMaxBytes)),
                         slot.receives[i].tag};
    tcpqp_work work{};
    work.id = kAnnounceId | index(slot);
    work.addr = &a;
    work.length = static_cast<uint32_t>(announce_bytes(a.count));
    work.mr = announces_region_.get();
    slot.announcing = true;
    announced_++;
    return post(0, {&work, 1}, true);
}

Result ReceiveComm::receive(std::span<const Receive> receives, bool polled, Request** out) {
    if (result() != kSuccess)
        return result();
    for (const Receive& receive : receives)
        if (const Result result = check(receive.memory, receive.data, receive.bytes);
            result != kSuccess)
            return result;
    if (polled && receives[0].memory->is_device_only) {
        warn("LL and LL128 in a GPU's memory: messages come there in any order; NCCL_PROTO=Simple");
        return kInvalidUsage;
    }
    Slot* slot = free_slot();
    if (slot == nullptr)  // an announcement may have left meanwhile
        return progress();
    slot->comm = this;
    slot->count = static_cast<uint32_t>(receives.size());
    slot->left = slot->count;
    slot->bytes = {};
    slot->polled = polled;
    slot->bounced = false;
    slot->taken = 0;
    std::copy(receives.begin(), receives.end(), slot->receives.begin());
    for (const Receive& receive : receives)
        receive.memory->users++;
    *out = slot;
    return take_up(*slot);
}

// What came before the peer went is still good.
Result ReceiveComm::take_up(Slot& slot) {
    if (mode_ == Mode::kAnnounced || is_lost()) {
        serve_held(slot);
        if (slot.left == 0 || result() != kSuccess)
            return result();
        return is_lost() ? fail_lost() : announce(slot);
    }
    waiting_.push_back(&slot);
    recall_due_ |= mode_ == Mode::kEager && (slot.count != 1 || slot.receives[0].tag != eager_tag_);
    serve_waiting();
    if (result() == kSuccess)
        say_what_is_due(kEagerReturn);
    return result();
}

void ReceiveComm::completed(uint32_t, const tcpqp_completion& completion) {
    if (completion.opcode == TCPQP_OP_SEND) {
        const auto which = static_cast<uint32_t>(completion.id);
        if ((completion.id & kAnnounceId) != 0)
            slots_[which].announcing = false;
        else
            notes_[which].busy = false;
    } else if ((completion.id & kEagerId) != 0) {
        received_eager(completion);
    } else {
        received(completion);
    }
    if (result() == kSuccess)
        say_what_is_due(kEagerUrgent);
}

void ReceiveComm::received(const tcpqp_completion& completion) {
    Slot& slot = slots_[completion.id >> kEntryBits];
    const uint32_t entry = completion.id & (kGroupMax - 1);
    if ((completion.flags & TCPQP_F_IMM) == 0 ||
        completion.imm != immediate_of(slot.sequence, entry)) {
        static_cast<void>(fail(kRemoteError, "a message came that no receive was announced for"));
        return;
    }
    slot.bytes[entry] += completion.length;
    finish_part(slot, entry);
    if (slot.left != 0)
        return;
    if (slot.bounced)
        copy_in_order(static_cast<std::byte*>(slot.receives[0].data),
                      reinterpret_cast<const std::byte*>(bounces_[index(slot)].words.data()),
                      slot.bytes[0]);
    count_short(slot);
}

void ReceiveComm::finish_part(Slot& slot, uint32_t entry) noexcept {
    slot.receives[entry].memory->users--;
    slot.left--;
}

// Receives that are not announced, or whose announcement the sender may never hear.
bool ReceiveComm::has_unposted() const noexcept {
    return !waiting_.empty() || std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
        return slot.announcing && slot.left != 0;
    });
}

void ReceiveComm::close() noexcept { report(announced_, eager_sequence_); }

}  // namespace tcpqp::nccl
