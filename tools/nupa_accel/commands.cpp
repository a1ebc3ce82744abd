// SPDX-License-Identifier: BSD-3-Clause
#include "nupa_accel/commands.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace nupa::accel {
namespace {

constexpr uint64_t kCompareStepBytes = 4096;

// Which fields an operation has; the others are zero.
enum Fields : unsigned {
    kTo = 1 << 0,
    kFrom = 1 << 1,
    kOther = 1 << 2,  // an address
    kStart = 1 << 3,  // the same field, but any number
    kBytes = 1 << 4,
    kValue = 1 << 5,
    kType = 1 << 6,
    kLimit = 1 << 7,
};

constexpr std::array<unsigned, NUPA_ACCEL_OP_COUNT> kFields{
    0,                                      // NOP
    kTo | kFrom | kBytes,                   // COPY
    kTo | kBytes | kValue,                  // FILL
    kTo | kStart | kBytes | kValue,         // PATTERN
    kFrom | kOther | kBytes,                // COMPARE
    kTo | kFrom | kOther | kBytes | kType,  // SUM
    kTo | kValue | kLimit,                  // WAIT
    kValue,                                 // RING
};

unsigned element_bytes(uint16_t type) noexcept { return type == NUPA_ACCEL_BF16 ? 2 : 4; }

bool zero_elsewhere(const nupa_accel_cmd& cmd, unsigned fields) noexcept {
    return (fields & kTo || !cmd.to) && (fields & kFrom || !cmd.from) &&
           (fields & (kOther | kStart) || !cmd.other) && (fields & kBytes || !cmd.bytes) &&
           (fields & kValue || !cmd.value) && (fields & kType || !cmd.type) &&
           (fields & kLimit || !cmd.limit_ms) &&
           std::all_of(std::begin(cmd.reserved), std::end(cmd.reserved),
                       [](uint8_t byte) { return byte == 0; });
}

bool sane(const nupa_accel_cmd& cmd) noexcept {
    switch (cmd.op) {
        case NUPA_ACCEL_FILL:
            return cmd.bytes % sizeof(uint32_t) == 0;
        case NUPA_ACCEL_PATTERN:
            return cmd.value > 0 && cmd.value <= NUPA_ACCEL_PERIOD_MAX;
        case NUPA_ACCEL_SUM:
            return cmd.type < NUPA_ACCEL_TYPE_COUNT && cmd.bytes % element_bytes(cmd.type) == 0;
        case NUPA_ACCEL_WAIT:
            return cmd.to % sizeof(uint32_t) == 0 && cmd.limit_ms > 0 &&
                   cmd.limit_ms <= NUPA_ACCEL_WAIT_MAX_MS;
        case NUPA_ACCEL_RING:
            return cmd.value < NUPA_ACCEL_BELLS;
        default:
            return true;
    }
}

bool within(uint64_t at, uint64_t length, uint64_t bytes) noexcept {
    return at <= bytes && length <= bytes - at;
}

void fill(std::span<std::byte> to, uint32_t value) noexcept {
    for (size_t at = 0; at < to.size(); at += sizeof(value))
        std::memcpy(to.data() + at, &value, sizeof(value));
}

void pattern(std::span<std::byte> to, uint64_t start, uint32_t period) noexcept {
    uint64_t next = (start % period + 1) % period;
    for (std::byte& byte : to) {
        byte = static_cast<std::byte>(next);
        next = next + 1 == period ? 0 : next + 1;
    }
}

uint64_t equal_bytes(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    uint64_t at = 0;
    while (at < a.size()) {
        const uint64_t step = std::min<uint64_t>(kCompareStepBytes, a.size() - at);
        if (std::memcmp(a.data() + at, b.data() + at, step) != 0)
            break;
        at += step;
    }
    while (at < a.size() && a[at] == b[at])
        at++;
    return at;
}

float from_bf16(uint16_t bits) noexcept {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t to_bf16(float value) noexcept {
    const auto bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value))
        return static_cast<uint16_t>(bits >> 16 | 0x40);  // quiet: rounding could make it infinite
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class Element, class Add>
void sum(std::byte* to, const std::byte* a, const std::byte* b, uint64_t bytes, Add add) noexcept {
    for (uint64_t at = 0; at < bytes; at += sizeof(Element)) {
        Element x, y;
        std::memcpy(&x, a + at, sizeof(x));
        std::memcpy(&y, b + at, sizeof(y));
        const Element z = add(x, y);
        std::memcpy(to + at, &z, sizeof(z));
    }
}

}  // namespace

nupa_accel_status check(const nupa_accel_cmd& cmd, uint64_t bytes) noexcept {
    if (cmd.op >= NUPA_ACCEL_OP_COUNT)
        return NUPA_ACCEL_E_OPCODE;
    const unsigned fields = kFields[cmd.op];
    if (!zero_elsewhere(cmd, fields) || !sane(cmd))
        return NUPA_ACCEL_E_INVALID;
    const uint64_t length = cmd.op == NUPA_ACCEL_WAIT ? sizeof(uint32_t) : cmd.bytes;
    if ((fields & kTo && !within(cmd.to, length, bytes)) ||
        (fields & kFrom && !within(cmd.from, length, bytes)) ||
        (fields & kOther && !within(cmd.other, length, bytes)))
        return NUPA_ACCEL_E_BOUNDS;
    return NUPA_ACCEL_OK;
}

Outcome execute(const nupa_accel_cmd& cmd, std::span<std::byte> memory) noexcept {
    std::byte* const to = memory.data() + cmd.to;
    const std::byte* const from = memory.data() + cmd.from;
    switch (cmd.op) {
        case NUPA_ACCEL_COPY:
            std::memmove(to, from, cmd.bytes);
            break;
        case NUPA_ACCEL_FILL:
            fill({to, cmd.bytes}, cmd.value);
            break;
        case NUPA_ACCEL_PATTERN:
            pattern({to, cmd.bytes}, cmd.other, cmd.value);
            break;
        case NUPA_ACCEL_COMPARE:
            return {NUPA_ACCEL_OK,
                    equal_bytes({from, cmd.bytes}, {memory.data() + cmd.other, cmd.bytes})};
        case NUPA_ACCEL_SUM:
            if (cmd.type == NUPA_ACCEL_F32)
                sum<float>(to, from, memory.data() + cmd.other, cmd.bytes,
                           [](float a, float b) { return a + b; });
            else
                sum<uint16_t>(
                    to, from, memory.data() + cmd.other, cmd.bytes,
                    [](uint16_t a, uint16_t b) { return to_bf16(from_bf16(a) + from_bf16(b)); });
            break;
        default:
            break;
    }
    return {NUPA_ACCEL_OK};
}

bool flag_is_set(const nupa_accel_cmd& cmd, std::span<const std::byte> memory) noexcept {
    // Whoever set it wrote first what it stands for.
    return __atomic_load_n(reinterpret_cast<const uint32_t*>(memory.data() + cmd.to),
                           __ATOMIC_ACQUIRE) == cmd.value;
}

}  // namespace nupa::accel
