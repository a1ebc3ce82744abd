// SPDX-License-Identifier: BSD-3-Clause
// What is done to segments on their way to a port: faults, a rule of its own for some flows, and a
// rate with a queue.
#pragma once

#include <vector>

#include "engine/faults.hpp"
#include "engine/flow_match.hpp"
#include "engine/packet.hpp"
#include "fabric/link_model.hpp"

namespace nupa::daemon {

class Impairments {
public:
    static constexpr size_t kRulesMax = 64;  // each is tried for each segment

    // Faults of the flows that match; rules are tried in the order in which they were made.
    struct Rule {
        FlowMatch match;
        Faults faults;
    };

    [[nodiscard]] bool any() const noexcept {
        return model_.limited() || faults_.config().any() || !rules_.empty();
    }
    // Of the first rule that matches, or else the port's own.
    [[nodiscard]] Faults& faults_of(const Packet& segment) noexcept;
    // True: @segment left with another segment's option.
    bool copy_option(Packet& segment, bool copy) noexcept { return options_.pass(segment, copy); }
    LinkVerdict admit(uint64_t now_ns, uint32_t bytes) noexcept {
        return model_.admit(now_ns, bytes);
    }

    [[nodiscard]] const FaultConfig& faults() const noexcept { return faults_.config(); }
    [[nodiscard]] const LinkConfig& rate() const noexcept { return model_.config(); }
    [[nodiscard]] const std::vector<Rule>& rules() const noexcept { return rules_; }
    // Of all flows without a rule.  Dice, queue and remembered options begin anew.
    void configure(const FaultConfig& faults, const LinkConfig& rate) noexcept;
    [[nodiscard]] const Rule* find_rule(const FlowMatch& match) const noexcept;
    // False: there are kRulesMax.
    bool set_rule(const FlowMatch& match, const FaultConfig& faults);
    void remove_rule(const FlowMatch& match) noexcept;
    void clear_rules() noexcept { rules_.clear(); }

private:
    Faults faults_;
    std::vector<Rule> rules_;
    OptionMemory options_;
    LinkModel model_;
};

}  // namespace nupa::daemon
