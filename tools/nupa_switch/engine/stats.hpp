// SPDX-License-Identifier: BSD-3-Clause
// Counters in ABI order.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <array>
#include <cstdint>

namespace nupa {

struct PortStats {
    std::array<std::uint64_t, NUPA_STAT_COUNT> values{};
    void add(nupa_stat which, std::uint64_t n = 1) noexcept { values[which] += n; }
    std::uint64_t operator[](nupa_stat which) const noexcept { return values[which]; }
};

struct QpStats {
    std::array<std::uint64_t, NUPA_QP_STAT_COUNT> values{};
    void add(nupa_qp_stat which, std::uint64_t n = 1) noexcept { values[which] += n; }
    std::uint64_t operator[](nupa_qp_stat which) const noexcept { return values[which]; }
};

// "rx_packets", ...; nullptr when out of range.
const char* stat_name(std::size_t which) noexcept;
const char* qp_stat_name(std::size_t which) noexcept;

}  // namespace nupa
