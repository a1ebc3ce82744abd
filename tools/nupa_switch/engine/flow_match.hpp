// SPDX-License-Identifier: BSD-3-Clause
// Which flows a rule is about: any fields of the 5-tuple, as the receiver sees it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "endian.hpp"
#include "flow.hpp"

namespace nupa {

struct FlowMatch {
    using Address = std::array<std::uint8_t, 16>;  // IPv4 in the first four bytes
    std::uint8_t family = 0;                       // 4, 6 or 0: any; needed with an address
    std::optional<Address> saddr, daddr;
    std::optional<std::uint16_t> sport, dport;  // host order

    bool operator==(const FlowMatch&) const = default;
    bool matches(const FlowKey& flow) const noexcept {
        return (family == 0 ? flow.raw.family != 0 : flow.raw.family == family) &&
               same(saddr, flow.raw.saddr) && same(daddr, flow.raw.daddr) &&
               same(sport, flow.raw.sport) && same(dport, flow.raw.dport);
    }

private:
    static bool same(const std::optional<Address>& wanted,
                     const std::uint8_t (&found)[16]) noexcept {
        return !wanted || std::memcmp(wanted->data(), found, sizeof found) == 0;
    }
    static bool same(const std::optional<std::uint16_t>& wanted, __be16 found) noexcept {
        std::uint8_t bytes[2];
        std::memcpy(bytes, &found, sizeof bytes);
        return !wanted || *wanted == get_be16(bytes);
    }
};

}  // namespace nupa
