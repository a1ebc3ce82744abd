// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/send_comm.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <new>
#include <numeric>

#include "nccl/plugin/log.hpp"

namespace tcpqp::nccl {
namespace {

constexpr uint64_t kSilentId = uint64_t{1} << 33;  // a stop or a skip
constexpr uint64_t kCopyId = uint64_t{1} << 34;
constexpr uint32_t kSilentMax = 2 * (kEagerBuffers + 1);  // of two grants

}  // namespace

SendComm::SendComm(std::vector<Rail> rails)
    : Comm(std::move(rails)), free_(kSendsMax), buffers_(kAnnouncesMax * kBufferBytes) {
    std::iota(free_.rbegin(), free_.rend(), uint16_t{0});
}

SendComm::~SendComm() {
    end_rails();
    buffers_region_.reset();
    copies_region_.reset();
}

Depth SendComm::depth(uint32_t rail) noexcept {
    if (rail != 0)
        return {.sends = kSendsMax, .receives = 1};
    return {.sends = kSendsMax + kSilentMax, .receives = kAnnouncesMax};
}

Result SendComm::start() {
    if (make_region(0, buffers_.data(), buffers_.size(), buffers_region_) != 0)
        return fail(kSystemError, "cannot register memory; raise `ulimit -l`");
    std::array<uint32_t, kAnnouncesMax> all;
    std::iota(all.begin(), all.end(), 0u);
    return receive_announces(all);
}

Result SendComm::receive_announces(std::span<const uint32_t> buffers) noexcept {
    std::array<tcpqp_work, kAnnouncesMax> works;
    for (size_t i = 0; i < buffers.size(); i++) {
        works[i] = {};
        works[i].id = kAnnounceId | buffers[i];
        works[i].addr = buffers_.data() + buffers[i] * kBufferBytes;
        works[i].length = kBufferBytes;
        works[i].mr = buffers_region_.get();
    }
    post_aside(0, std::span(works).first(buffers.size()), false);
    return result();
}

// The peer's bytes: copied once, then checked.
void SendComm::take(const tcpqp_completion& completion) {
    const auto buffer = static_cast<uint32_t>(completion.id);
    Announce said{};
    std::memcpy(&said, buffers_.data() + buffer * kBufferBytes,
                std::min<size_t>(completion.length, sizeof(said)));
    if (said.count > kGroupMax || completion.length != announce_bytes(said.count) ||
        said.sequence != heard_ || !take(said)) {
        static_cast<void>(fail(kRemoteError, "the peer announced a receive that makes no sense"));
        return;
    }
    heard_++;
    static_cast<void>(receive_announces({&buffer, 1}));
}

bool SendComm::take(const Announce& said) {
    switch (said.kind) {
        case Kind::kAnnounce:
            return take_announce(said);
        case Kind::kGrant:
        case Kind::kCredit:
            return take_credits(said);
        case Kind::kRecall:  // we may have stopped before
            if (said.count != 0)
                return false;
            if (eager_)
                static_cast<void>(stop_after_groups());
            return true;
    }
    return false;
}

bool SendComm::take_announce(const Announce& said) {
    const uint32_t all = (1u << said.count) - 1;
    if (said.count == 0 || eager_ || stop_due_ || tail_ - head_ == kAnnouncesMax ||
        (said.taken & ~all) != 0 || said.taken == all ||
        said.skips > (stopped_ ? kEagerBuffers : 0))
        return false;
    for (uint32_t i = 0; i < said.count; i++)
        if (said.receives[i].bytes > kMessageMaxBytes)
            return false;
    stopped_ = false;
    announced_++;
    Group& group = groups_[tail_++ % kAnnouncesMax];
    group = {};
    group.announce = said;
    group.matched = static_cast<uint32_t>(std::popcount(said.taken));
    static_cast<void>(post_silent(said.skips));
    return true;
}

bool SendComm::take_credits(const Announce& said) {
    const uint32_t messages = said.receives[0].bytes;
    if (said.count != 1 || messages == 0 || messages > kEagerCredits)
        return false;
    if (said.kind == Kind::kGrant) {
        if (eager_ || stop_due_ || stopped_)
            return false;
        make_copies();
        eager_ = true;
        eager_tag_ = said.receives[0].tag;
        credits_ = messages;
    } else if (eager_) {  // else we have stopped meanwhile
        credits_ += messages;
    }
    return credits_ <= kEagerCredits;
}

void SendComm::completed(uint32_t rail, const tcpqp_completion& completion) {
    if (completion.opcode == TCPQP_OP_RECV) {
        if (rail == 0)
            take(completion);
        else
            static_cast<void>(fail(kRemoteError, "a message came where none may"));
        return;
    }
    if (completion.id == kSilentId)
        return;
    if ((completion.id & kCopyId) != 0) {
        free_copies_.push_back(static_cast<uint16_t>(completion.id));
        return;
    }
    Send& send = sends_[completion.id];
    send.left--;
    send.memory->users--;
}

// Sends that wait for others of their group.
bool SendComm::has_unposted() const noexcept {
    const auto& taken = groups_[head_ % kAnnouncesMax].taken;
    return head_ != tail_ && std::any_of(taken.begin(), taken.end(),
                                         [](const Send* send) { return send != nullptr; });
}

void SendComm::release(Request& request) noexcept {
    free_.push_back(static_cast<uint16_t>(static_cast<Send*>(&request) - sends_.data()));
    busy_--;
}

Result SendComm::send(void* data, size_t bytes, int tag, Memory* memory, Request** out) {
    if (head_ == tail_ && credits_ == 0)
        static_cast<void>(progress());
    if (result() != kSuccess)
        return result();
    if (is_lost())
        return fail_lost();
    if (free_.empty())
        return kSuccess;
    if (head_ != tail_)
        return send_announced(data, bytes, tag, memory, out);
    return eager_ ? send_eager(data, bytes, tag, memory, out) : kSuccess;
}

Result SendComm::send_announced(void* data, size_t bytes, int tag, Memory* memory, Request** out) {
    Group& group = oldest();
    const Announce& a = group.announce;
    uint32_t entry = 0;
    while (entry < a.count && (group.taken[entry] != nullptr || (a.taken >> entry & 1) != 0 ||
                               a.receives[entry].tag != tag))
        entry++;
    if (entry == a.count)
        return kSuccess;
    const size_t room = a.receives[entry].bytes;
    if (const Result result = check(memory, data, bytes); result != kSuccess)
        return result;
    if (bytes > room && !told_of_truncation_) {
        told_of_truncation_ = true;
        warn(
            "a send of %zu bytes meets a receive of %zu: only these are sent, here and from now "
            "on",
            bytes, room);
    }
    const Striping stripes(room, static_cast<uint32_t>(rails_.size()), a.sequence);
    Send& send = take_slot(data, std::min(bytes, room), memory, stripes.count());
    group.taken[entry] = &send;
    *out = &send;
    return ++group.matched == a.count ? post_group(group) : kSuccess;
}

Result SendComm::send_eager(void* data, size_t bytes, int tag, Memory* memory, Request** out) {
    if (bytes > kEagerBytes || tag != eager_tag_)
        return stop();
    // a GPU's memory is sent from where it lies
    const bool copied = !copies_.empty() && (memory == nullptr || !memory->is_device_only);
    if (copied && free_copies_.empty())
        static_cast<void>(progress());
    if (credits_ == 0 || (copied && free_copies_.empty()))
        return result();
    if (const Result result = check(memory, data, bytes); result != kSuccess)
        return result;
    Send& send = take_slot(data, bytes, memory, copied ? 0 : 1);
    credits_--;
    tcpqp_work work{};
    work.id = static_cast<uint64_t>(&send - sends_.data());
    work.addr = data;
    work.length = static_cast<uint32_t>(bytes);
    work.imm = immediate_of(eager_sequence_++, 0);
    work.flags = TCPQP_F_IMM;
    work.mr = region(memory, 0);
    if (copied) {
        work.id = kCopyId | free_copies_.back();
        work.addr = copies_.data() + free_copies_.back() * kEagerBytes;
        work.mr = copies_region_.get();
        free_copies_.pop_back();
        std::memcpy(work.addr, data, bytes);
    }
    *out = &send;
    return post(0, {&work, 1}, true);
}

SendComm::Send& SendComm::take_slot(void* data, size_t bytes, Memory* memory,
                                    uint32_t parts) noexcept {
    Send& send = sends_[free_.back()];
    free_.pop_back();
    busy_++;
    send.comm = this;
    send.count = 1;
    send.bytes[0] = bytes;
    send.data = static_cast<std::byte*>(data);
    send.memory = memory;
    send.left = parts;
    memory->users += parts;
    return send;
}

void SendComm::make_copies() {
    if (!rails_[0].needs_regions() || !copies_.empty())
        return;
    try {
        free_copies_.resize(kEagerCredits);
        copies_.resize(kEagerCredits * kEagerBytes);
    } catch (const std::bad_alloc&) {
        free_copies_.clear();
        return;
    }
    if (make_region(0, copies_.data(), copies_.size(), copies_region_) != 0)
        copies_.clear();
    free_copies_.resize(copies_.size() / kEagerBytes);
    std::iota(free_copies_.begin(), free_copies_.end(), uint16_t{0});
}

// Else the end of the queue pair would take back what the peer has not acknowledged.
void SendComm::wait_for_copies() noexcept {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kCloseLimitMs);
    while (free_copies_.size() * kEagerBytes < copies_.size() && progress() == kSuccess &&
           !is_lost() && std::chrono::steady_clock::now() < until)
        ::sched_yield();
}

Result SendComm::post_silent(uint32_t count) noexcept {
    std::array<tcpqp_work, kEagerBuffers> works{};
    for (uint32_t i = 0; i < count; i++) {
        works[i].id = kSilentId;
        works[i].addr = buffers_.data();
        works[i].mr = buffers_region_.get();
    }
    post_aside(0, std::span(works).first(count), true);
    return result();
}

// The receiver keeps a buffer for it.
Result SendComm::stop() noexcept {
    eager_ = stop_due_ = false;
    stopped_ = true;
    credits_ = 0;
    return post_silent(1);
}

// The receiver's oldest buffers are those that it announced before the grant.
Result SendComm::stop_after_groups() noexcept {
    eager_ = false;
    credits_ = 0;
    stop_due_ = true;
    return head_ == tail_ ? stop() : kSuccess;
}

Result SendComm::post_group(Group& group) {
    std::array<std::array<tcpqp_work, kGroupMax>, kRailsMax> works;
    std::array<size_t, kRailsMax> count{};
    const auto rails = static_cast<uint32_t>(rails_.size());
    for (uint32_t entry = 0; entry < group.announce.count; entry++) {
        if (group.taken[entry] == nullptr)  // an eager message was there first
            continue;
        const Send& send = *group.taken[entry];
        const Striping stripes(group.announce.receives[entry].bytes, rails,
                               group.announce.sequence);
        for (uint32_t i = 0; i < stripes.count(); i++) {
            const uint32_t rail = stripes.first() + i;
            const Stripe part = stripes.at(i, send.bytes[0]);
            tcpqp_work& work = works[rail][count[rail]++];
            work = {};
            work.id = static_cast<uint64_t>(&send - sends_.data());
            work.addr = send.data + part.begin;
            work.length = static_cast<uint32_t>(part.end - part.begin);
            work.imm = immediate_of(group.announce.sequence, entry);
            work.flags = TCPQP_F_IMM;
            work.mr = region(send.memory, rail);
        }
    }
    head_++;
    for (uint32_t rail = 0; rail < rails; rail++)
        if (const Result result = post(rail, std::span(works[rail]).first(count[rail]), true);
            result != kSuccess)
            return result;
    return stop_due_ && head_ == tail_ ? stop() : kSuccess;
}

void SendComm::close() noexcept {
    wait_for_copies();
    take_back_lanes();
    const bool whole = result() == kSuccess && busy_ == 0;
    report(announced_, eager_sequence_);
    if (!whole)
        return;
    for (Rail& rail : rails_)
        rail.finish();
}

}  // namespace tcpqp::nccl
