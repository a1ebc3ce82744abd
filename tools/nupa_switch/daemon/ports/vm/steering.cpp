// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/steering.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace nupa::daemon {
namespace {

constexpr uint16_t kWildcardsAll =
    NUPA_STEER_ANY_SPORT | NUPA_STEER_ANY_SADDR | NUPA_STEER_ANY_DADDR | NUPA_STEER_ANY_DPORT;

bool rule_matches(const nupa_flow& rule, uint16_t wildcards, const nupa_flow& flow) noexcept {
    return rule.family == flow.family &&
           (wildcards & NUPA_STEER_ANY_SPORT || rule.sport == flow.sport) &&
           (wildcards & NUPA_STEER_ANY_DPORT || rule.dport == flow.dport) &&
           (wildcards & NUPA_STEER_ANY_SADDR ||
            !std::memcmp(rule.saddr, flow.saddr, sizeof(flow.saddr))) &&
           (wildcards & NUPA_STEER_ANY_DADDR ||
            !std::memcmp(rule.daddr, flow.daddr, sizeof(flow.daddr)));
}

}  // namespace

nupa_admin_status Steering::add(uint32_t id, const nupa_cmd_steer& cmd,
                                unsigned queue_pairs) noexcept {
    Rule rule{{cmd.flow}, cmd.wildcards, cmd.queue};
    if (cmd.reserved || cmd.wildcards & ~kWildcardsAll || cmd.queue >= queue_pairs ||
        !rule.flow.valid())
        return NUPA_E_INVALID;
    if (rules_.contains(id) || (!rule.wildcards && exact_.contains(rule.flow)))
        return NUPA_E_EXISTS;
    if (rules_.size() >= NUPA_STEER_RULES_MAX)
        return NUPA_E_NOSPACE;
    try {
        if (!rule.wildcards)
            exact_.emplace(rule.flow, id);
        rules_.emplace(id, rule);
    } catch (const std::bad_alloc&) {
        exact_.erase(rule.flow);
        return NUPA_E_NOSPACE;
    }
    wildcard_rules_ += rule.wildcards ? 1 : 0;
    asked_.reset();
    return NUPA_OK;
}

nupa_admin_status Steering::remove(uint32_t id) noexcept {
    auto it = rules_.find(id);
    if (it == rules_.end())
        return NUPA_E_NOENT;
    if (it->second.wildcards)
        wildcard_rules_--;
    else
        exact_.erase(it->second.flow);
    rules_.erase(it);
    asked_.reset();
    return NUPA_OK;
}

void Steering::reset() {
    rules_.clear();
    exact_.clear();
    wildcard_rules_ = 0;
    asked_.reset();
    rss_ = Rss::standard();
}

std::optional<unsigned> Steering::match(const FlowKey& flow) const noexcept {
    if (auto it = exact_.find(flow); it != exact_.end())
        return rules_.at(it->second).queue;
    if (!wildcard_rules_)
        return std::nullopt;
    if (!asked_ || !(*asked_ == flow)) {
        answer_ = match_wildcards(flow);
        asked_ = flow;
    }
    return answer_;
}

std::optional<unsigned> Steering::match_wildcards(const FlowKey& flow) const noexcept {
    for (const auto& [id, rule] : rules_)
        if (rule.wildcards && rule_matches(rule.flow.raw, rule.wildcards, flow.raw))
            return rule.queue;
    return std::nullopt;
}

QueueChoice Steering::choose(const Packet& packet) const noexcept {
    QueueChoice choice;
    // All fragments of a datagram go one way, and only the first has ports.
    if (!packet.has_flow() || packet.at.fragment)
        return choice;
    const FlowKey flow = packet.flow();
    choice.hash = rss_.hash(flow, true);
    choice.hash_l4 = true;
    choice.queue = rss_.queue(choice.hash);
    if (!rules_.empty() && packet.at.tcp())
        if (auto queue = match(flow))
            choice.queue = *queue;
    return choice;
}

}  // namespace nupa::daemon
