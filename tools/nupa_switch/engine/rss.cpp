// SPDX-License-Identifier: BSD-3-Clause
#include "rss.hpp"

#include <algorithm>
#include <bit>

namespace nupa {

namespace {

constexpr std::array<std::uint8_t, NUPA_RSS_KEY_BYTES> kDefaultKey = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

// 32 bits of the key from bit @at on.
std::uint32_t key_window(std::span<const std::uint8_t, NUPA_RSS_KEY_BYTES> key,
                         std::size_t at) noexcept {
    std::uint64_t v = 0;
    for (std::size_t i = 0; i < 5; i++)
        v = v << 8 | (at / 8 + i < key.size() ? key[at / 8 + i] : 0);
    return static_cast<std::uint32_t>(v >> (8 - at % 8));
}

}  // namespace

void Rss::set_key(std::span<const std::uint8_t, NUPA_RSS_KEY_BYTES> key) noexcept {
    // The hash is linear: a value's is that of its lowest bit and that of the rest.
    for (std::size_t position = 0; position < kInputMaxBytes; position++) {
        std::array<std::uint32_t, 256>& hashes = by_byte_[position];
        std::array<std::uint32_t, 8> windows;
        for (std::size_t bit = 0; bit < windows.size(); bit++)
            windows[bit] = key_window(key, position * 8 + 7 - bit);
        for (unsigned value = 1; value < hashes.size(); value++)
            hashes[value] = hashes[value & (value - 1)] ^
                            windows[static_cast<std::size_t>(std::countr_zero(value))];
    }
}

Rss Rss::with_default_key() noexcept {
    Rss rss;
    rss.set_key(kDefaultKey);
    return rss;
}

// Made once: a port takes a copy at each of its resets.
const Rss& Rss::standard() noexcept {
    static const Rss rss = with_default_key();
    return rss;
}

void Rss::set_table(std::span<const std::uint8_t, NUPA_RSS_TABLE_ENTRIES> table) noexcept {
    std::copy(table.begin(), table.end(), table_.begin());
}

std::uint32_t Rss::hash(const FlowKey& flow, bool ports) const noexcept {
    std::uint32_t h = 0;
    std::size_t position = 0;
    const auto eat = [&](const void* bytes, std::size_t n) {
        const auto* p = static_cast<const std::uint8_t*>(bytes);
        for (std::size_t i = 0; i < n; i++)
            h ^= by_byte_[position++][p[i]];
    };
    const std::size_t address = flow.raw.family == 4 ? 4 : 16;
    eat(flow.raw.saddr, address);
    eat(flow.raw.daddr, address);
    if (ports) {
        eat(&flow.raw.sport, 2);
        eat(&flow.raw.dport, 2);
    }
    return h;
}

}  // namespace nupa
