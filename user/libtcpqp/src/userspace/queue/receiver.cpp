// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/queue/receiver.hpp"

#include <tcp_qp/tcp_bth.h>
#include <tcp_qp/tcp_qp.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace tcpqp::stock {

Receiver::Step Receiver::broken(uint32_t reason) noexcept {
    reason_ = reason;
    return Step::kBroken;
}

Receiver::Step Receiver::step() noexcept {
    while (!in_message_) {
        const Step s = boundaries_ != nullptr ? step_boundary() : step_header();
        if (s != Step::kMessage)
            return s;
    }
    if (!has_buffer_)
        return Step::kNeedBuffer;
    if (frame_.length > capacity_)
        return Step::kTooLong;
    take_staged();
    return offset_ == frame_.length ? Step::kMessage : Step::kNeedBytes;
}

// kMessage: a header was taken.
Receiver::Step Receiver::step_header() noexcept {
    const std::byte* at = stage_.data() + head_;
    if (staged() < kFrameBytes) {
        if (may_begin({at, staged()}))
            return Step::kNeedBytes;
        return broken(greeted_ ? TCPQP_REASON_BAD_FRAME : TCPQP_REASON_PEER_NOT_STOCK);
    }
    Frame frame;
    const uint32_t reason = decode(at, frame);
    if (reason == TCPQP_REASON_BAD_FRAME && !greeted_)
        return broken(TCPQP_REASON_PEER_NOT_STOCK);
    if (reason != TCPQP_REASON_NONE)
        return broken(reason);
    head_ += kFrameBytes;
    return accept(frame);
}

Receiver::Step Receiver::accept(const Frame& frame) noexcept {
    if ((frame.type == FrameType::kHello) == greeted_)
        return broken(greeted_ ? TCPQP_REASON_BAD_FRAME : TCPQP_REASON_PEER_NOT_STOCK);
    greeted_ = true;
    if (frame.type == FrameType::kHello) {
        frame_ = frame;
        return stop_at_hello_ ? Step::kHello : Step::kMessage;
    }
    if (frame.msn != msn_)
        return broken(TCPQP_REASON_BAD_FRAME);
    msn_++;
    repeats_ = frame.length == frame_.length ? repeats_ + 1 : 0;
    begin(frame);
    return take_reached_frame() ? Step::kMessage : broken(TCP_QP_REASON_LOCAL_ERROR);
}

void Receiver::begin(const Frame& frame) noexcept {
    frame_ = frame;
    offset_ = 0;
    in_message_ = true;
    expect_large_ = frame.length >= kDirectBytes;
}

bool Receiver::is_at_control() const noexcept {
    tcpqp_bpf_message next;
    return boundaries_ != nullptr && at_boundary() && boundaries_->next(next) == Begins::kControl &&
           next.length <= 1;
}

void Receiver::pass_control() noexcept {
    tcpqp_bpf_message next;
    boundaries_->pass(boundaries_->next(next), next);
}

// False: some of it is still to come.
bool Receiver::skip_control() noexcept {
    const auto n = static_cast<uint32_t>(std::min<size_t>(skip_, staged()));
    head_ += n;
    skip_ -= n;
    return skip_ == 0;
}

// kMessage: something was taken.
Receiver::Step Receiver::step_boundary() noexcept {
    if (!skip_control())
        return Step::kNeedBytes;
    switch (boundaries_->next(begun_)) {
        case Begins::kSend:
            return step_send();
        case Begins::kControl:
            boundaries_->pass(Begins::kControl, begun_);
            skip_ = std::max<uint32_t>(begun_.length, 1);
            return Step::kMessage;
        case Begins::kTerminate:
            return broken(TCP_QP_REASON_REMOTE_ERROR);
        case Begins::kRefused:
            return Step::kRefused;
        case Begins::kUnknown:
            break;
    }
    return staged() == 0 && reached_ == 0 ? Step::kNeedBytes : broken(TCPQP_REASON_NO_BOUNDARY);
}

// An empty message begins with its one byte, others perhaps before it.
Receiver::Step Receiver::step_send() noexcept {
    if (begun_.length == 0 && staged() == 0)
        return Step::kNeedBytes;
    if (begun_.length == 0)
        head_++;
    boundaries_->pass(Begins::kSend, begun_);
    const bool imm = begun_.opcode == TCP_BTH_OP_SEND_ONLY_IMM;
    begin(Frame{FrameType::kMessage, begun_.length, begun_.msn, imm ? begun_.ext4 : 0, imm});
    return take_reached() ? Step::kMessage : broken(TCPQP_REASON_NO_BOUNDARY);
}

bool Receiver::reach(std::byte* buffer, size_t capacity) noexcept {
    if (!in_message_ || !expect_large_)
        return false;
    if (reach_ == 0)
        reach_at_ = reach_bytes_ = 0;
    return boundaries_ != nullptr ? reach_known(buffer, capacity) : reach_frame(buffer, capacity);
}

bool Receiver::reach_known(std::byte* buffer, size_t capacity) noexcept {
    tcpqp_bpf_message next;
    if (reach_ == kReachMessages ||
        !boundaries_->knows_send(static_cast<uint32_t>(reach_), reach_bytes_, next) ||
        next.length < kDirectBytes || next.length > capacity)
        return false;
    where_[++reach_] = {buffer, next.length};
    reach_bytes_ += next.length;
    return true;
}

// The headers come one behind the other in the stage, and are shown to step_header() one by one.
bool Receiver::reach_frame(std::byte* buffer, size_t capacity) noexcept {
    if (reach_ == kReachFrames || repeats_ < kReachAfter || frame_.length > capacity)
        return false;
    reach_++;
    where_[2 * reach_] = {buffer, frame_.length};
    where_[2 * reach_ + 1] = {stage_.data() + reach_ * kFrameBytes, kFrameBytes};
    return true;
}

void Receiver::stage_reached() noexcept {
    if (boundaries_ != nullptr)
        return;
    const size_t header = std::min(reached_, kFrameBytes);
    tail_ += header;
    reached_ -= header;
}

// False: there is no memory to put right what was taken for another message.
bool Receiver::take_reached_frame() noexcept {
    if (reached_ == 0)
        return true;
    if (where_[2 * ++reach_at_].iov_len != frame_.length)
        return return_reached();
    offset_ = std::min<size_t>(reached_, frame_.length);
    reached_ -= offset_;
    stage_reached();
    return true;
}

// All that came behind the header goes to the stage, in the order of the stream.
bool Receiver::return_reached() noexcept {
    std::vector<std::byte> stage;
    try {
        stage.resize(std::max(kStageBytes, reached_));
    } catch (const std::bad_alloc&) {
        return false;
    }
    head_ = tail_ = 0;
    for (size_t i = 2 * reach_at_; reached_ != 0; i++) {
        const size_t n = std::min(reached_, where_[i].iov_len);
        std::memcpy(stage.data() + tail_, where_[i].iov_base, n);
        tail_ += n;
        reached_ -= n;
    }
    stage_.swap(stage);
    return true;
}

// False: it is another message than the one whose place they went to.
bool Receiver::take_reached() noexcept {
    if (reached_ == 0)
        return true;
    offset_ = std::min<size_t>(reached_, frame_.length);
    reached_ -= offset_;
    return where_[++reach_at_].iov_len == frame_.length;
}

void Receiver::give(std::byte* buffer, size_t bytes) noexcept {
    buffer_ = buffer;
    capacity_ = bytes;
    has_buffer_ = true;
}

void Receiver::next() noexcept { in_message_ = has_buffer_ = false; }

void Receiver::take_staged() noexcept {
    const size_t n = std::min(staged(), frame_.length - offset_);
    if (n == 0)
        return;
    std::memcpy(buffer_ + offset_, stage_.data() + head_, n);
    head_ += n;
    offset_ += n;
    staged_bytes_ += n;
}

std::span<iovec> Receiver::where_among() noexcept {
    if (staged() != 0)
        std::memmove(stage_.data(), stage_.data() + head_, staged());
    tail_ = staged();
    head_ = 0;
    size_t n = 0;
    if (in_message_)  // the stage is empty then
        where_[n++] = {buffer_ + offset_, frame_.length - offset_};
    if (ahead() != 0)
        where_[n++] = {stage_.data() + tail_, ahead() - tail_};
    return {where_.data(), n};
}

}  // namespace tcpqp::stock
