// SPDX-License-Identifier: BSD-3-Clause
#include "flow.hpp"

#include <algorithm>

namespace nupa {

namespace {

__extension__ using Wide = unsigned __int128;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

bool zero_from(const std::uint8_t (&bytes)[16], std::size_t at) noexcept {
    return std::all_of(bytes + at, bytes + 16, [](std::uint8_t b) { return b == 0; });
}

constexpr std::size_t kIpv4Bytes = 4;

}  // namespace

FlowKey FlowKey::reversed() const noexcept {
    FlowKey other = *this;
    std::swap(other.raw.sport, other.raw.dport);
    std::swap(other.raw.saddr, other.raw.daddr);
    return other;
}

bool FlowKey::valid() const noexcept {
    if (raw.reserved[0] || raw.reserved[1] || raw.reserved[2])
        return false;
    if (raw.family == 6)
        return true;
    return raw.family == 4 && zero_from(raw.saddr, kIpv4Bytes) && zero_from(raw.daddr, kIpv4Bytes);
}

std::uint64_t FlowKey::hash(std::uint64_t seed) const noexcept {
    static_assert(sizeof raw == 5 * sizeof(std::uint64_t));
    std::uint64_t words[5];
    std::memcpy(words, &raw, sizeof words);
    // Three products that do not wait for each other; each half of one is keyed.
    const std::uint64_t a =
        mix(words[0] ^ seed ^ 0x9e3779b97f4a7c15, words[1] ^ ~seed ^ 0xbf58476d1ce4e5b9);
    const std::uint64_t b = mix(words[2] + seed, words[3] ^ seed ^ 0x94d049bb133111eb);
    const std::uint64_t c = mix(words[4] ^ seed ^ 0xd6e8feb86659fd93, seed | 1);
    return mix(a ^ (b << 23 | b >> 41) ^ 0xa0761d6478bd642f, c ^ seed ^ 0xe7037ed1a0b428db);
}

}  // namespace nupa
