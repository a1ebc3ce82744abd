// SPDX-License-Identifier: BSD-3-Clause
#include "rss.hpp"

#include <algorithm>

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

Rss::Rss() { set_key(kDefaultKey); }

void Rss::set_key(std::span<const std::uint8_t, NUPA_RSS_KEY_BYTES> key) noexcept {
    for (std::size_t position = 0; position < kInputMaxBytes; position++)
        for (unsigned value = 0; value < 256; value++) {
            std::uint32_t h = 0;
            for (unsigned bit = 0; bit < 8; bit++)
                if (value & (0x80u >> bit))
                    h ^= key_window(key, position * 8 + bit);
            by_byte_[position][value] = h;
        }
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
