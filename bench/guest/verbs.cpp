// SPDX-License-Identifier: BSD-3-Clause
#include "verbs.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "clock.hpp"
#include "counters.hpp"
#include "maps.hpp"

namespace nupa::bench {
namespace {

constexpr uint64_t kMemoryMaxBytes = 96 << 20;  // more flows share buffers
constexpr uint32_t kDepthMin = 4;
constexpr uint32_t kDepthMax = 4096;
constexpr uint32_t kInlineMaxBytes = 128;
constexpr size_t kPollBatch = 64;
constexpr uint64_t kReceiveBit = uint64_t{1} << 63;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

uint32_t depth_of(const Spec& s) {
    return s.depth
               ? s.depth
               : std::clamp(static_cast<uint32_t>(kWindowBytes / s.bytes), kDepthMin, kDepthMax);
}

// Twice as many receives as sends: a receiver that is late need not stop the sender.
uint64_t slots_of(const Spec& s, uint32_t depth) {
    const uint64_t wanted = uint64_t{2} * depth * s.flows;
    return std::clamp<uint64_t>(kMemoryMaxBytes / s.bytes, kDepthMin, wanted);
}

}  // namespace

Verbs::Verbs(const TransportArgs& args, std::unique_ptr<tcpqp::Context> context, bool doorbells)
    : spec_(args.spec),
      lengths_(spec_),
      context_(std::move(context)),
      write_(spec_.transport.find("write") != std::string::npos),
      doorbells_(doorbells),
      sends_(args.sender || spec_.pingpong()),
      receives_((!args.sender && !write_) || spec_.pingpong()),
      depth_(depth_of(spec_)),
      batch_(spec_.batch ? std::min(spec_.batch, kChainMax)
                         : std::clamp(depth_ / 4, 1u, kChainMax)),
      inline_bytes_(spec_.bytes <= kInlineMaxBytes ? spec_.bytes : 0),
      slots_(slots_of(spec_, depth_)),
      memory_(slots_ * spec_.bytes, spec_.scattered, spec_.pool),
      mr_(memory_.registered(*context_, kAccess)),
      cq_(*context_, static_cast<int>(uint64_t{3} * depth_ * spec_.flows),
          doorbells ? tcpqp::Waking::kDescriptor : tcpqp::Waking::kChannel),
      flows_(spec_.flows) {
    if (write_ && spec_.pingpong())
        throw std::invalid_argument("WRITEs have no round trips");
    if (!mr_)
        tcpqp::throw_errno("register memory");
    if (sends_)
        fill_sources();
    prepare_chain();
    create();
}

void Verbs::create() {
    if (spec_.memory) {
        kernel_kib_ = unswappable_kib();
        rings_kib_ = mapped_ring_kib();
    }
    const tcpqp::QpDepth depth{.sends = sends_ ? depth_ : 1,
                               .receives = receives_ ? 2 * depth_ : 1,
                               .sges = 1,
                               .access = IBV_ACCESS_REMOTE_WRITE,
                               .inline_bytes = inline_bytes_,
                               .signal_all = false};
    for (uint32_t i = 0; i < spec_.flows; i++) {
        flows_[i].sources = {uint64_t{i} * depth_, depth_, slots_};
        flows_[i].sinks = {uint64_t{i} * 2 * depth_, uint64_t{2} * depth_, slots_};
        flows_[i].qp = std::make_unique<tcpqp::QueuePair>(*context_, cq_, depth);
        if (cq_.has_descriptor() && sends_)
            flows_[i].ring = std::make_unique<tcpqp::SendRing>(*context_, *flows_[i].qp->get());
        if (!receives_)
            continue;
        flows_[i].to_receive = 2 * depth_;
        while (flows_[i].to_receive)
            refill(flows_[i], i, false);
    }
}

namespace {

// Byte @at of every message, as no memory is by itself.
constexpr uint8_t byte_of_message(uint64_t at) noexcept {
    return static_cast<uint8_t>(at * 167 + (at >> 8) + 29);
}

}  // namespace

void Verbs::fill_sources() noexcept {
    const std::span<uint8_t> all = memory_.bytes();
    for (uint64_t i = 0; i < all.size(); i++)
        all[i] = byte_of_message(i % spec_.bytes);
}

// Each place holds a whole message or none of it, and there is one; of a mix, the longest so far.
void Verbs::check() const {
    if (sends_)
        return;
    std::vector<uint8_t> message(spec_.bytes);
    for (uint64_t i = 0; i < spec_.bytes; i++)
        message[i] = byte_of_message(i);
    uint64_t whole = 0;
    for (uint64_t n = 0; n < slots_; n++) {
        const std::span<const uint8_t> place(slot(n), spec_.bytes);
        const auto [at, right] = std::ranges::mismatch(place, message);
        if (right == message.end() || (spec_.mixed && right != message.begin()))
            whole++;
        const auto rest = spec_.mixed ? at : place.begin();
        if (right != message.end() &&
            std::any_of(rest, place.end(), [](uint8_t b) { return b != Buffer::kFill; }))
            throw std::runtime_error(spec_.transport + ": place " + std::to_string(n) +
                                     " is wrong at byte " + std::to_string(at - place.begin()));
    }
    if (whole == 0)
        throw std::runtime_error(spec_.transport + ": no message is where it was to be received");
}

void Verbs::exchange_targets(Control& control) {
    const auto mine = reinterpret_cast<uint64_t>(memory_.bytes().data());
    const std::string theirs =
        control.meet(std::to_string(mine) + " " + std::to_string(mr_.lkey()));
    size_t used = 0;
    peer_.address = std::stoull(theirs, &used);
    peer_.key = static_cast<uint32_t>(std::stoul(theirs.substr(used)));
}

void Verbs::begin(uint64_t messages) {
    left_ = messages;
    shares_.clear();
    ready_.clear();
    for (uint32_t i = 0; i < spec_.flows; i++) {
        Flow& f = flows_[i];
        f.target = share_of(messages, i, spec_.flows);
        f.posted = f.sent = f.received = 0;
        if (f.target)
            ready_.push_back(i);
    }
}

void Verbs::send(uint64_t messages) {
    begin(messages);
    while (left_) {
        while (!ready_.empty()) {
            const uint32_t flow = ready_.front();
            ready_.pop_front();
            post_sends(flow);
        }
        if (!take_completions())
            wait();
    }
}

// Whole batches, unless what is left is less.
void Verbs::post_sends(uint32_t flow) {
    Flow& f = flows_[flow];
    for (;;) {
        const uint64_t room = depth_ - (f.posted - f.sent), rest = f.target - f.posted;
        const auto count = static_cast<uint32_t>(std::min<uint64_t>(batch_, rest));
        if (!count || room < count)
            return;
        post_chain(flow, count);
    }
}

void Verbs::prepare_chain() noexcept {
    for (uint32_t i = 0; i < kChainMax; i++) {
        chain_.sges[i] = {0, spec_.bytes, mr_.lkey()};
        ibv_send_wr& wr = chain_.wrs[i];
        wr.sg_list = &chain_.sges[i];
        wr.num_sge = 1;
        wr.opcode = write_ ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
        wr.send_flags = inline_bytes_ ? static_cast<unsigned>(IBV_SEND_INLINE) : 0u;
        wr.next = i + 1 < kChainMax ? &chain_.wrs[i + 1] : nullptr;
    }
}

// If the last one is signalled, its completion tells of all before it.
void Verbs::post_chain(uint32_t flow, uint32_t count, bool signaled) {
    Flow& f = flows_[flow];
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t at = f.sources.next() * spec_.bytes;
        chain_.sges[i].length = lengths_.of(f.posted++);
        chain_.sges[i].addr = reinterpret_cast<uint64_t>(memory_.bytes().data()) + at;
        chain_.wrs[i].wr_id = uint64_t{flow} << 32 | static_cast<uint32_t>(f.posted);
        chain_.wrs[i].wr.rdma.remote_addr = peer_.address + at;
        chain_.wrs[i].wr.rdma.rkey = peer_.key;
    }
    ibv_send_wr& last = chain_.wrs[count - 1];
    const ibv_send_wr before = last;
    last.next = nullptr;
    last.send_flags |= signaled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u;
    hand_over(f, chain_.wrs.data());
    last.next = before.next;
    last.send_flags = before.send_flags;
}

// Who sends one message and then waits does both in one system call.
void Verbs::hand_over(Flow& flow, ibv_send_wr* chain) {
    ibv_send_wr* bad = nullptr;
    int error = 0;
    if (!flow.ring)
        error = ibv_post_send(flow.qp->get(), chain, &bad);
    else
        error = flow.ring->post(chain);
    if (error != 0)
        tcpqp::throw_errno("post sends", error);
    if (!flow.ring)
        return;
    ring_later(flow);
    if (!spec_.pingpong())
        ring_now();
}

void Verbs::receive(uint64_t messages) {
    if (write_)
        return;
    begin(messages);
    while (left_)
        if (!take_completions())
            wait();
    ring_now();
}

// A quarter of the receives at a time, or at once.
void Verbs::refill(Flow& flow, uint32_t index, bool now) {
    if (!flow.to_receive || (!now && flow.to_receive < std::max(1u, depth_ / 4)))
        return;
    std::array<tcpqp::Work, kChainMax> works;
    while (flow.to_receive) {
        const uint32_t n = std::min(flow.to_receive, kChainMax);
        for (uint32_t i = 0; i < n; i++)
            works[i] = {.cookie = kReceiveBit | index,
                        .address = slot(flow.sinks.next()),
                        .bytes = spec_.bytes,
                        .lkey = mr_.lkey()};
        if (const int error = flow.qp->post_receives({works.data(), n}); error != 0)
            tcpqp::throw_errno("post receives", error);
        flow.to_receive -= n;
    }
    if (doorbells_ && received_)
        ring_later(flow);
}

// With the next wait, in one system call.
void Verbs::ring_later(Flow& flow) {
    if (unrung_ != &flow)
        ring_now();
    unrung_ = &flow;
    if (spec_.poll && !cq_.has_descriptor())
        ring_now();
}

void Verbs::ring_now() {
    const Flow* flow = std::exchange(unrung_, nullptr);
    if (!flow)
        return;
    if (const int error = cq_.descriptor().ring(flow->qp->get()->qp_num); error != 0)
        tcpqp::throw_errno("ring the doorbell", error);
}

bool Verbs::take_completions() {
    std::array<ibv_wc, kPollBatch> wcs;
    const int n = cq_.poll(wcs);
    if (n < 0)
        throw std::runtime_error("the completion queue is broken");
    for (int i = 0; i < n; i++) {
        const ibv_wc& wc = wcs[static_cast<size_t>(i)];
        if (wc.status != IBV_WC_SUCCESS)
            throw std::runtime_error(spec_.transport + ": " + ibv_wc_status_str(wc.status));
        if (wc.wr_id & kReceiveBit)
            receive_completed(wc);
        else
            sends_completed(wc);
    }
    return n > 0;
}

void Verbs::sends_completed(const ibv_wc& wc) {
    const auto index = static_cast<uint32_t>(wc.wr_id >> 32);
    Flow& f = flows_[index];
    const uint32_t count = static_cast<uint32_t>(wc.wr_id) - static_cast<uint32_t>(f.sent);
    f.sent += count;
    sent_ += count;
    if (spec_.pingpong())
        return;
    left_ -= count;
    ready_.push_back(index);
    if (f.sent == f.target)
        remember_shares();
}

void Verbs::receive_completed(const ibv_wc& wc) {
    const auto index = static_cast<uint32_t>(wc.wr_id);
    Flow& f = flows_[index];
    if (wc.byte_len != lengths_.of(f.received))
        throw std::runtime_error(spec_.transport + ": a message of another length");
    received_++;
    left_--;
    f.received++;
    f.to_receive++;
    refill(f, index, false);
    if (f.received == f.target)
        remember_shares();
}

void Verbs::remember_shares() {
    if (!shares_.empty())
        return;
    for (const Flow& f : flows_)
        shares_.push_back(lengths_.total(f.sent + f.received));
}

void Verbs::wait() {
    if (spec_.poll)
        return spin();
    if (cq_.has_descriptor()) {
        if (call_descriptor(kSilenceLimitMs) == ETIMEDOUT)
            throw std::runtime_error(spec_.transport + ": no completion came");
        return;
    }
    if (!cq_.arm())
        tcpqp::throw_errno("arm the completion queue");
    if (take_completions())
        return;
    pollfd ready{cq_.fd(), POLLIN, 0};
    const int n = poll(&ready, 1, kSilenceLimitMs);
    if (n == 0 || (n < 0 && errno != EINTR))
        throw std::runtime_error(spec_.transport + ": no completion came");
    cq_.consume_events();
}

// What is owed is rung for, then the descriptor waited for: 0, ETIMEDOUT, or EINTR.
int Verbs::call_descriptor(int timeout_ms) {
    const Flow* flow = std::exchange(unrung_, nullptr);
    const tcpqp::CqDescriptor& descriptor = cq_.descriptor();
    const int error = flow ? descriptor.ring_and_wait(flow->qp->get()->qp_num, timeout_ms)
                           : descriptor.wait(timeout_ms);
    if (error != 0 && error != ETIMEDOUT && error != EINTR)
        tcpqp::throw_errno("wait for completions", error);
    return error;
}

// Each call looks into the device for as long, and does not sleep; soft RoCE has none for that.
void Verbs::spin() {
    constexpr uint64_t kLookEvery = 1 << 16;
    if (cq_.has_descriptor())
        call_descriptor(kSpinMs);
    if (spins_++ % kLookEvery)
        return;
    const uint64_t done = completed(), now = now_ns();
    if (done != moved_ || !moved_ns_) {
        moved_ = done;
        moved_ns_ = now;
    } else if (now - moved_ns_ > uint64_t{kSilenceLimitMs} * 1000000) {
        throw std::runtime_error(spec_.transport + ": no completion came");
    }
}

// One message in batch_ is signalled, and the last.
void Verbs::trip_begins(uint64_t number, uint64_t of) {
    post_chain(0, 1, (number + 1) % batch_ == 0 || number + 1 == of);
}

// One message each way; what completes of the sends is taken along.
void Verbs::ping(uint64_t messages, std::vector<uint64_t>& rtt) {
    begin(0);
    for (uint64_t i = 0; i < messages; i++) {
        const uint64_t then = now_ns();
        left_ = 1;
        trip_begins(i, messages);
        while (left_)
            if (unrung_ || !take_completions())  // what is not rung for has no answer
                wait();
        rtt.push_back(now_ns() - then);
    }
    drain_sends();
}

void Verbs::pong(uint64_t messages) {
    begin(0);
    for (uint64_t i = 0; i < messages; i++) {
        left_ = 1;
        while (left_)
            if (unrung_ || !take_completions())
                wait();
        trip_begins(i, messages);
    }
    drain_sends();
}

// Nothing of one phase completes in the next.
void Verbs::drain_sends() {
    while (flows_[0].sent < flows_[0].posted)
        if (!take_completions())
            wait();
}

}  // namespace nupa::bench
