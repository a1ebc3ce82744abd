// SPDX-License-Identifier: BSD-3-Clause
// The few messages by which two ncqp agree, over the queue pair itself.  Each
// is a SEND with immediate; the immediate says what a message is, data too.
// docs/ncqp.md describes the protocol; what comes from a peer is hostile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ncqp {

constexpr uint8_t kProtocolVersion = 1;
constexpr size_t kControlBytes = 128;
constexpr size_t kControlTextBytes = 96;

enum class MessageType : uint8_t {
    kHello = 1,    // sender: size if known, message size, pattern
    kReady = 2,    // receiver: buffers are posted
    kData = 3,     // payload only
    kEnd = 4,      // sender: that was all, this many bytes
    kVerdict = 5,  // receiver: got this many bytes, good or not
};

struct Control {
    MessageType type = MessageType::kHello;
    bool size_known = false;
    bool failed = false;
    uint64_t bytes = 0;
    uint64_t messages = 0;
    uint32_t msg_bytes = 0;
    uint32_t period = 0;
    std::string text{};  // why it failed
};

[[nodiscard]] uint32_t immediate_of(MessageType type) noexcept;
// Empty: not a message of this protocol and version.
[[nodiscard]] std::optional<MessageType> type_of_immediate(uint32_t imm) noexcept;

void encode(const Control& control, std::span<std::byte, kControlBytes> out) noexcept;
// Empty: malformed.  Text is reduced to printable ASCII, for it goes to a terminal.
[[nodiscard]] std::optional<Control> decode(std::span<const std::byte> in) noexcept;

}  // namespace ncqp
