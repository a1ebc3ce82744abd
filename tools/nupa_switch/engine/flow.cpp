// SPDX-License-Identifier: BSD-3-Clause
#include "flow.hpp"

#include <algorithm>

namespace nupa {

namespace {

bool zero_from(const std::uint8_t (&bytes)[16], std::size_t at) noexcept {
    return std::all_of(bytes + at, bytes + 16, [](std::uint8_t b) { return b == 0; });
}

constexpr std::size_t kIpv4Bytes = 4;

}  // namespace

bool FlowKey::valid() const noexcept {
    if (raw.reserved[0] || raw.reserved[1] || raw.reserved[2])
        return false;
    if (raw.family == 6)
        return true;
    return raw.family == 4 && zero_from(raw.saddr, kIpv4Bytes) && zero_from(raw.daddr, kIpv4Bytes);
}

}  // namespace nupa
