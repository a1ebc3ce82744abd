// SPDX-License-Identifier: BSD-3-Clause
// A TCP or UDP 5-tuple in the layout of struct nupa_flow.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mix.hpp"

namespace nupa {

struct FlowKey {
    nupa_flow raw{};  // family 4 or 6; ports and addresses in wire order; unused bytes zero

    // Keys are made, compared and hashed by words: a load waits long for what was stored just now
    // in another width.
    static constexpr std::size_t kWords = sizeof(nupa_flow) / sizeof(std::uint64_t);
    std::uint64_t word(std::size_t i) const noexcept {
        std::uint64_t value;
        std::memcpy(&value, reinterpret_cast<const std::byte*>(&raw) + i * sizeof value,
                    sizeof value);
        return value;
    }
    void set_word(std::size_t i, std::uint64_t value) noexcept {
        std::memcpy(reinterpret_cast<std::byte*>(&raw) + i * sizeof value, &value, sizeof value);
    }

    bool operator==(const FlowKey& other) const noexcept {
        for (std::size_t i = 0; i < kWords; i++)
            if (word(i) != other.word(i))
                return false;
        return true;
    }
    // The same connection as the other side receives it.
    FlowKey reversed() const noexcept {
        constexpr std::uint64_t kSport = 0xffffull << 32, kDport = 0xffffull << 48;
        const std::uint64_t first = word(0);
        FlowKey other;
        other.set_word(
            0, (first & ~(kSport | kDport)) | (first >> 16 & kSport) | (first << 16 & kDport));
        other.set_word(1, word(3)), other.set_word(2, word(4));
        other.set_word(3, word(1)), other.set_word(4, word(2));
        return other;
    }
    // Family is 4 or 6, reserved bytes and unused address bytes are zero.
    bool valid() const noexcept;
    // Seeded, so that nobody outside can choose colliding flows.
    std::uint64_t hash(std::uint64_t seed) const noexcept {
        // Three products that do not wait for each other; each half of one is keyed.
        const std::uint64_t a =
            mix(word(0) ^ seed ^ 0x9e3779b97f4a7c15, word(1) ^ ~seed ^ 0xbf58476d1ce4e5b9);
        const std::uint64_t b = mix(word(2) + seed, word(3) ^ seed ^ 0x94d049bb133111eb);
        const std::uint64_t c = mix(word(4) ^ seed ^ 0xd6e8feb86659fd93, seed | 1);
        return mix(a ^ std::rotl(b, 23) ^ 0xa0761d6478bd642f, c ^ seed ^ 0xe7037ed1a0b428db);
    }
};
static_assert(sizeof(FlowKey) == FlowKey::kWords * sizeof(std::uint64_t));

}  // namespace nupa
