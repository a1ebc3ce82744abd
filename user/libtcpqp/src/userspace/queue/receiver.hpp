// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of the stream: stage, frame, place.  No socket in here:
// bytes come in by where() and took(), so that a test can feed it.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "userspace/base/limits.hpp"
#include "userspace/frames/frame.hpp"
#include "userspace/option/boundaries.hpp"

namespace tcpqp::stock {

class Receiver {
public:
    // @greeted: the hello has been read already.
    explicit Receiver(bool greeted) : greeted_(greeted), stage_(kStageBytes) {}

    enum class Step : uint8_t {
        kNeedBytes,   // read more: where()
        kNeedBuffer,  // a message waits for a receive: give()
        kMessage,     // frame() is complete in the given buffer: next()
        kTooLong,     // frame() does not fit in the given buffer
        kBroken,      // reason()
        kHello,       // the peer's hello is frame(); only after stop_at_hello()
        kRefused,     // begun() is of a kind that we don't take
    };

    // @bytes came where() said, of frames, with the stage empty before: are they one message
    // without immediate data, and nothing else?  Then it goes to @buffer.  False: took() them.
    bool take_only(size_t bytes, std::byte* buffer, size_t capacity, uint32_t& length) noexcept;
    // The commonest in one step: a message without immediate data that is staged whole goes
    // to @buffer, and is frame().  False: step() must see.
    bool take_whole(std::byte* buffer, size_t bytes) noexcept;
    // Goes on with what is staged.
    Step step() noexcept;
    // The buffer of the oldest receive, at kNeedBuffer.
    void give(std::byte* buffer, size_t bytes) noexcept;
    void next() noexcept;

    // Whether there are frames after the hello is not known yet.
    void stop_at_hello() noexcept { stop_at_hello_ = true; }
    // There are none: messages begin where @boundaries say.
    void use(Boundaries& boundaries) noexcept {
        boundaries_ = &boundaries;
        greeted_ = true;
    }
    // Option framing, between two messages: the next byte is an ACKNOWLEDGE that can be read alone.
    [[nodiscard]] bool is_at_control() const noexcept;
    void pass_control() noexcept;
    // Option framing: the message being received, or refused.
    [[nodiscard]] const tcpqp_bpf_message& begun() const noexcept { return begun_; }

    // Where bytes of the stream go next, at kNeedBytes: one or two places.
    [[nodiscard]] std::span<iovec> where() noexcept {
        reach_ = 0;
        if (in_message_ || staged() != 0)
            return where_among();
        head_ = tail_ = 0;
        where_[0] = {stage_.data(), ahead()};
        return {where_.data(), 1};
    }
    // After where(), in a large message: the bytes of the next one may go to @buffer by the same
    // read; places() has more.  Option framing: it has arrived, and is as large.  Frames: it is
    // taken for as long as those before it; if it is not, its bytes go back to the stage.
    bool reach(std::byte* buffer, size_t capacity) noexcept;
    [[nodiscard]] std::span<iovec> places() noexcept {
        return {where_.data(), boundaries_ != nullptr ? 1 + reach_ : 2 + 2 * reach_};
    }
    void took(size_t bytes) noexcept {
        if (in_message_) {
            const size_t n = std::min(bytes, frame_.length - offset_);
            offset_ += n;
            bytes -= n;
        }
        if (reach_ == 0) {
            tail_ += bytes;
            return;
        }
        reached_ = bytes;
        stage_reached();
    }

    [[nodiscard]] bool greeted() const noexcept { return greeted_; }
    // Between two messages: where a peer may close.
    [[nodiscard]] bool at_boundary() const noexcept {
        return !in_message_ && staged() == 0 && reached_ == 0 && skip_ == 0 && greeted_;
    }
    // Of frames, and none of the next one's bytes are here.
    [[nodiscard]] bool is_at_header() const noexcept {
        return !in_message_ && staged() == 0 && boundaries_ == nullptr && greeted_;
    }
    // In a stream of large messages: the length of the last one, else 0.
    [[nodiscard]] uint32_t large_bytes() const noexcept {
        return expect_large_ ? frame_.length : 0;
    }
    // Bytes of the message that has begun, still to come.
    [[nodiscard]] size_t rest() const noexcept { return in_message_ ? frame_.length - offset_ : 0; }
    [[nodiscard]] const Frame& frame() const noexcept { return frame_; }
    [[nodiscard]] uint32_t reason() const noexcept { return reason_; }
    // Payload bytes that went by the stage.
    [[nodiscard]] uint64_t staged_bytes() const noexcept { return staged_bytes_; }

private:
    [[nodiscard]] size_t staged() const noexcept { return tail_ - head_; }
    [[nodiscard]] std::span<iovec> where_among() noexcept;
    // In a stream of large messages: the next header, where there is one, and no byte to copy.
    [[nodiscard]] size_t ahead() const noexcept {
        if (!expect_large_ || tail_ >= kFrameBytes)
            return kStageBytes;
        return in_message_ && boundaries_ != nullptr ? 0 : kFrameBytes;
    }
    Step step_header() noexcept;
    Step accept(const Frame& frame) noexcept;
    Step step_boundary() noexcept;
    Step step_send() noexcept;
    bool skip_control() noexcept;
    void begin(const Frame& frame) noexcept;
    bool take_reached() noexcept;
    bool reach_known(std::byte* buffer, size_t capacity) noexcept;
    bool reach_frame(std::byte* buffer, size_t capacity) noexcept;
    void stage_reached() noexcept;
    bool take_reached_frame() noexcept;
    bool return_reached() noexcept;
    Step broken(uint32_t reason) noexcept;
    void take_staged() noexcept;

    bool greeted_;
    bool in_message_ = false;
    bool expect_large_ = false;
    bool has_buffer_ = false;
    uint32_t msn_ = 0;
    Boundaries* boundaries_ = nullptr;
    std::vector<std::byte> stage_;
    size_t head_ = 0;
    size_t tail_ = 0;
    uint64_t staged_bytes_ = 0;
    Frame frame_;
    std::byte* buffer_ = nullptr;
    size_t capacity_ = 0;
    size_t offset_ = 0;  // of the message
    std::array<iovec, std::max(1 + kReachMessages, 2 + 2 * kReachFrames)> where_{};
    size_t reach_ = 0;          // messages that the last read may have reached beyond the one begun
    size_t reached_ = 0;        // bytes that came of messages that were not begun yet
    size_t reach_at_ = 0;       // messages of the last read that were begun
    uint32_t reach_bytes_ = 0;  // of all of the last read's
    uint32_t reason_ = 0;
    uint32_t skip_ = 0;  // bytes of a control message still to come
    tcpqp_bpf_message begun_{};
    bool stop_at_hello_ = false;
    uint32_t repeats_ = 0;  // frames before frame_ that were as long
};

inline bool Receiver::take_only(size_t bytes, std::byte* buffer, size_t capacity,
                                uint32_t& length) noexcept {
    if (in_message_ || tail_ != 0 || bytes < kFrameBytes ||
        !is_plain_message(stage_.data(), msn_, length) || length != bytes - kFrameBytes ||
        length > capacity) [[unlikely]]
        return false;
    if (length != 0) [[likely]]
        std::memcpy(buffer, stage_.data() + kFrameBytes, length);
    msn_++;
    expect_large_ = length >= kDirectBytes;
    staged_bytes_ += length;
    return true;
}

inline bool Receiver::take_whole(std::byte* buffer, size_t bytes) noexcept {
    uint32_t length = 0;
    if (in_message_ || !greeted_ || boundaries_ != nullptr || reached_ != 0 ||
        staged() < kFrameBytes || !is_plain_message(stage_.data() + head_, msn_, length) ||
        length > std::min(bytes, staged() - kFrameBytes))
        return false;
    if (length != 0)
        std::memcpy(buffer, stage_.data() + head_ + kFrameBytes, length);
    frame_ = {FrameType::kMessage, length, msn_++};
    head_ += kFrameBytes + length;
    expect_large_ = length >= kDirectBytes;
    staged_bytes_ += length;
    return true;
}

}  // namespace tcpqp::stock
