// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/impairments.hpp"

#include <algorithm>

namespace nupa::daemon {

Faults& Impairments::faults_of(const Packet& segment) noexcept {
    if (rules_.empty())
        return faults_;
    const FlowKey flow = segment.flow();
    for (Rule& rule : rules_)
        if (rule.match.matches(flow))
            return rule.faults;
    return faults_;
}

void Impairments::configure(const FaultConfig& faults, const LinkConfig& rate) noexcept {
    faults_ = Faults(faults);
    model_.configure(rate);
    options_ = OptionMemory();
}

const Impairments::Rule* Impairments::find_rule(const FlowMatch& match) const noexcept {
    const auto at = std::find_if(rules_.begin(), rules_.end(),
                                 [&](const Rule& rule) { return rule.match == match; });
    return at == rules_.end() ? nullptr : &*at;
}

bool Impairments::set_rule(const FlowMatch& match, const FaultConfig& faults) {
    for (Rule& rule : rules_)
        if (rule.match == match) {
            rule.faults = Faults(faults);
            return true;
        }
    if (rules_.size() >= kRulesMax)
        return false;
    rules_.push_back({match, Faults(faults)});
    return true;
}

void Impairments::remove_rule(const FlowMatch& match) noexcept {
    std::erase_if(rules_, [&](const Rule& rule) { return rule.match == match; });
}

}  // namespace nupa::daemon
