// SPDX-License-Identifier: BSD-3-Clause
// A TCP or UDP 5-tuple in the layout of struct nupa_flow.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <array>
#include <cstdint>
#include <cstring>

namespace nupa {

struct FlowKey {
    nupa_flow raw{};  // family 4 or 6; ports and addresses in wire order; unused bytes zero

    bool operator==(const FlowKey& other) const noexcept {
        return std::memcmp(&raw, &other.raw, sizeof raw) == 0;
    }
    // The same connection as the other side receives it.
    FlowKey reversed() const noexcept;
    // Family is 4 or 6, reserved bytes and unused address bytes are zero.
    bool valid() const noexcept;
    // Seeded, so that nobody outside can choose colliding flows.
    std::uint64_t hash(std::uint64_t seed) const noexcept;
};

}  // namespace nupa
