// SPDX-License-Identifier: BSD-3-Clause
#include "control.hpp"

#include <algorithm>

namespace ncqp {
namespace {

constexpr uint32_t kMagic = 0x4e435150;                               // "NCQP"
constexpr uint32_t kImmediate = 0x4e510000u | kProtocolVersion << 8;  // "NQ", version, type

enum : uint16_t { kFlagSizeKnown = 1 << 0, kFlagFailed = 1 << 1, kFlagsAll = 3 };

// Offsets in a control message, all numbers big endian.
enum {
    kAtMagic = 0,
    kAtVersion = 4,
    kAtType = 5,
    kAtFlags = 6,
    kAtBytes = 8,
    kAtMsgBytes = 16,
    kAtPeriod = 20,
    kAtMessages = 24,
    kAtText = 32
};
static_assert(kAtText + kControlTextBytes == kControlBytes);

template <typename T>
void put(std::byte* at, T value) noexcept {
    for (size_t i = sizeof(T); i-- > 0; value = static_cast<T>(value >> 8 * (sizeof(T) > 1)))
        at[i] = static_cast<std::byte>(value);
}

template <typename T>
T get(const std::byte* at) noexcept {
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); i++)
        value = value << 8 | static_cast<uint8_t>(at[i]);
    return static_cast<T>(value);
}

bool is_type(uint8_t type) noexcept {
    return type >= static_cast<uint8_t>(MessageType::kHello) &&
           type <= static_cast<uint8_t>(MessageType::kVerdict);
}

std::string printable(std::span<const std::byte> in) {
    std::string text;
    for (std::byte b : in) {
        const char c = static_cast<char>(b);
        if (c == '\0')
            break;
        text += c >= ' ' && c <= '~' ? c : '?';
    }
    return text;
}

}  // namespace

uint32_t immediate_of(MessageType type) noexcept { return kImmediate | static_cast<uint8_t>(type); }

std::optional<MessageType> type_of_immediate(uint32_t imm) noexcept {
    const auto type = static_cast<uint8_t>(imm);
    if ((imm & ~0xffu) != kImmediate || !is_type(type))
        return std::nullopt;
    return static_cast<MessageType>(type);
}

void encode(const Control& control, std::span<std::byte, kControlBytes> out) noexcept {
    std::byte* at = out.data();
    std::fill(out.begin(), out.end(), std::byte{0});
    put<uint32_t>(at + kAtMagic, kMagic);
    put<uint8_t>(at + kAtVersion, kProtocolVersion);
    put<uint8_t>(at + kAtType, static_cast<uint8_t>(control.type));
    put<uint16_t>(at + kAtFlags, static_cast<uint16_t>((control.size_known ? kFlagSizeKnown : 0) |
                                                       (control.failed ? kFlagFailed : 0)));
    put<uint64_t>(at + kAtBytes, control.bytes);
    put<uint32_t>(at + kAtMsgBytes, control.msg_bytes);
    put<uint32_t>(at + kAtPeriod, control.period);
    put<uint64_t>(at + kAtMessages, control.messages);
    const size_t n = std::min(control.text.size(), kControlTextBytes);
    std::transform(control.text.begin(), control.text.begin() + static_cast<ptrdiff_t>(n),
                   at + kAtText, [](char c) { return static_cast<std::byte>(c); });
}

std::optional<Control> decode(std::span<const std::byte> in) noexcept {
    if (in.size() != kControlBytes)
        return std::nullopt;
    const std::byte* at = in.data();
    const auto type = get<uint8_t>(at + kAtType);
    const auto flags = get<uint16_t>(at + kAtFlags);
    if (get<uint32_t>(at + kAtMagic) != kMagic ||
        get<uint8_t>(at + kAtVersion) != kProtocolVersion || !is_type(type) ||
        (flags & ~kFlagsAll) != 0)
        return std::nullopt;
    Control c;
    c.type = static_cast<MessageType>(type);
    c.size_known = flags & kFlagSizeKnown;
    c.failed = flags & kFlagFailed;
    c.bytes = get<uint64_t>(at + kAtBytes);
    c.msg_bytes = get<uint32_t>(at + kAtMsgBytes);
    c.period = get<uint32_t>(at + kAtPeriod);
    c.messages = get<uint64_t>(at + kAtMessages);
    c.text = printable(in.subspan(kAtText));
    return c;
}

}  // namespace ncqp
