// SPDX-License-Identifier: BSD-3-Clause
// What --stats prints: connections and bytes of each engine, and why connections stayed plain.
#pragma once

#include <array>
#include <cstdio>

#include "protocol/protocol.hpp"
#include "tcpqp.h"

namespace tcpqp::run {

class Stats {
public:
    void left(Plain why) noexcept {
        if (why < Plain::kEnd)
            plain_[static_cast<size_t>(why)]++;
    }
    void ended(const tcpqp_qp_info& info) noexcept;
    void print(std::FILE* out) const;

private:
    struct Engine {
        uint64_t connections, sent, received, placed, copied;
    };
    std::array<Engine, TCPQP_ENGINE_STOCK + 1> engines_{};
    std::array<uint64_t, static_cast<size_t>(Plain::kEnd)> plain_{};
};

}  // namespace tcpqp::run
