// SPDX-License-Identifier: BSD-3-Clause
// Which receive queue a packet goes to: exact rules, then wildcard rules, then RSS.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "engine/packet.hpp"
#include "engine/rss.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

struct QueueChoice {
    unsigned queue = 0;
    uint32_t hash = 0;
    bool hash_l4 = false;
};

class Steering {
public:
    explicit Steering(uint64_t hash_seed) noexcept : exact_(0, FlowHash{hash_seed}) {}

    nupa_admin_status add(uint32_t id, const nupa_cmd_steer& cmd, unsigned queue_pairs) noexcept;
    nupa_admin_status remove(uint32_t id) noexcept;
    void reset();
    Rss& rss() noexcept { return rss_; }

    [[nodiscard]] QueueChoice choose(const Packet& packet) const noexcept;

private:
    struct FlowHash {
        uint64_t seed;
        size_t operator()(const FlowKey& flow) const noexcept { return flow.hash(seed); }
    };
    struct Rule {
        FlowKey flow;
        uint16_t wildcards;
        uint16_t queue;
    };
    [[nodiscard]] std::optional<unsigned> match(const FlowKey& flow) const noexcept;
    [[nodiscard]] std::optional<unsigned> match_wildcards(const FlowKey& flow) const noexcept;

    Rss rss_ = Rss::standard();
    std::map<uint32_t, Rule> rules_;                         // by number: the lowest wins
    std::unordered_map<FlowKey, uint32_t, FlowHash> exact_;  // rule number
    size_t wildcard_rules_ = 0;
    // Of all rules in turn, for a flow: a burst's segments ask again and again.
    mutable std::optional<FlowKey> asked_;
    mutable std::optional<unsigned> answer_;
};

}  // namespace nupa::daemon
