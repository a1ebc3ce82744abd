// SPDX-License-Identifier: BSD-3-Clause
#include "queue.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "clock.hpp"

namespace perf {
namespace {

constexpr uint32_t kCompletions = 256;  // taken at once

tcpqp_cq_opts cq_opts(Depth depth) {
    tcpqp_cq_opts o{};
    o.flags = TCPQP_CQ_F_SINGLE_THREADED;
    o.entries = depth.sends + depth.receives;
    return o;
}

tcpqp_context_opts with_socket(tcpqp_context_opts o, int socket) {
    o.socket = socket;
    return o;
}

}  // namespace

Queue::Queue(Socket socket, const tcpqp_context_opts& opts, uint32_t bytes_max, Depth depth,
             bool pool)
    : depth_(depth),
      stride_(std::max(bytes_max, kAckBytes)),
      socket_(std::move(socket)),
      memory_(size_t{stride_} * (depth.receives + 1), pool),
      context_(with_socket(opts, socket_.get())),
      mr_(memory_.registered(context_)),
      cq_(context_, cq_opts(depth)),
      completions_(kCompletions),
      qp_(cq_, socket_.get(), qp_opts()),
      engine_(qp_.info().engine) {
    receives_.clear();
}

tcpqp_work Queue::receive(uint32_t slot) noexcept {
    return {slot, memory_.bytes().data() + size_t{slot} * stride_, stride_, 0, 0, 0, mr_.get()};
}

tcpqp_qp_opts Queue::qp_opts() {
    for (uint32_t slot = 0; slot < depth_.receives; slot++)
        receives_.push_back(receive(slot));
    tcpqp_qp_opts o{};
    o.sends = depth_.sends;
    o.receives = depth_.receives;
    o.first = receives_.data();
    o.first_count = depth_.receives;
    return o;
}

void Queue::fail(int error, const std::string& what) {
    throw tcpqp::Error(error, qp_.info().reason, what);
}

// What has completed by now.  False: nothing had.
bool Queue::take() {
    const int n = cq_.poll(completions_);
    if (n < 0)
        fail(n, "poll");
    for (const tcpqp_completion& c : std::span(completions_).first(static_cast<size_t>(n))) {
        if (c.status != 0)
            fail(c.status, "work request");
        if (c.opcode == TCPQP_OP_SEND) {
            sending_--;
        } else {
            received_++;
            receives_.push_back(receive(static_cast<uint32_t>(c.id)));
        }
    }
    return n != 0;
}

void Queue::take_or_sleep() {
    if (!take())
        sleep();
}

void Queue::repost(uint32_t flags) {
    if (receives_.empty())
        return;
    receives_.back().flags = flags;
    const int n = qp_.post_recv(receives_);
    if (n < 0)
        fail(n, "post_recv");
    receives_.clear();
}

// All from the same memory: its contents are not the point.
[[gnu::always_inline]] inline uint64_t Queue::send_batch(uint32_t bytes, uint64_t count,
                                                         uint32_t flags) {
    std::byte* at = memory_.bytes().data() + size_t{depth_.receives} * stride_;
    if (sends_.size() != count || sends_[0].length != bytes)
        sends_.assign(count, tcpqp_work{0, at, bytes, 0, 0, 0, mr_.get()});
    sends_.back().flags = flags;
    int n = qp_.post_send(sends_);
    while (n == -EAGAIN) {
        take_or_sleep();  // an answer may be here before its question is done
        n = qp_.post_send(sends_);
    }
    if (n < 0)
        fail(n, "post_send");
    sending_ += static_cast<uint64_t>(n);
    return static_cast<uint64_t>(n);
}

Sample Queue::ask(const Round& round) {
    return round.test == Test::kLatency ? ping(round) : send_stream(round);
}

Sample Queue::send_stream(const Round& round) {
    const uint64_t batch = std::clamp<uint64_t>(round.batch, 1, depth_.sends);
    const uint64_t answers = received_;
    const Stopwatch watch;
    for (uint64_t left = round.messages; left != 0;) {
        while (sending_ + std::min(batch, left) > depth_.sends)
            take_or_sleep();
        left -= send_batch(round.bytes, std::min(batch, left));
    }
    while (received_ == answers)
        take_or_sleep();
    const double seconds = watch.seconds();
    repost();
    return {seconds, {}};
}

// Who polls hands over at once; else the wait for the answer does, as send() and recv() are two
// calls and not three.
[[gnu::always_inline]] inline void Queue::say(const Round& round) {
    const uint32_t flags = polls(round) ? 0 : TCPQP_F_MORE;
    send_batch(round.bytes, 1, flags);
    repost(flags);
}

// A call that took something took all there was.  In line: the processor mispredicts each return
// to a caller from before a sleep.
[[gnu::always_inline]] inline void Queue::await_message(const Round& round) {
    for (const uint64_t before = received_; received_ == before;)
        if ((!take() || received_ == before) && !polls(round))
            sleep();
}

Sample Queue::ping(const Round& round) {
    Sample s = time_trips(round.messages, [&] {
        say(round);
        await_message(round);
    });
    repost();
    return s;
}

void Queue::serve(const Round& round) {
    if (round.test != Test::kLatency)
        return sink(round);
    for (uint64_t i = 0; i < round.messages; i++) {
        await_message(round);
        say(round);
    }
    while (sending_ != 0)
        take_or_sleep();
}

void Queue::sink(const Round& round) {
    for (const uint64_t all = received_ + round.messages; received_ < all;) {
        take_or_sleep();
        repost();
    }
    send_batch(kAckBytes, 1);
    while (sending_ != 0)
        take_or_sleep();
}

}  // namespace perf
