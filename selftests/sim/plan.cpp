// SPDX-License-Identifier: BSD-3-Clause
#include "plan.hpp"

#include <algorithm>

namespace sim {

namespace {

constexpr std::uint32_t kEpilogueMessages = 3;
constexpr std::uint32_t kAtomicBytes = 8;

Verb draw_verb(Dice& dice) {
    constexpr Verb kVerbs[] = {Verb::kSend,  Verb::kSend,  Verb::kSend,
                               Verb::kWrite, Verb::kWrite, Verb::kWriteImm,
                               Verb::kRead,  Verb::kRead,  Verb::kAtomic};
    return kVerbs[dice.below(std::size(kVerbs))];
}

Planned draw(const ConnectionSettings& c, Dice& dice, bool empty) {
    const Verb verb = c.one_sided ? draw_verb(dice) : Verb::kSend;
    if (verb == Verb::kAtomic)
        return {verb, kAtomicBytes};
    const std::uint32_t most =
        verb == Verb::kRead ? std::min(c.message_max, kReadMaxBytes) : c.message_max;
    return {verb, empty ? 0 : 1 + dice.below(most)};
}

// Short WRITEs, some of which share a segment.
Planned short_write(const ConnectionSettings& c, Dice& dice) {
    return {Verb::kWrite, 1 + dice.below(std::min(c.message_max, c.mss / 2))};
}

// SENDs of which so many fill a segment: a train of them that is cut there ends with a message.
Planned send_that_fills(const ConnectionSettings& c, Dice& dice) {
    const std::uint32_t length = c.mss / (1 + dice.below(4));
    return {Verb::kSend, c.mss % length == 0 && length <= c.message_max ? length : c.mss};
}

}  // namespace

std::vector<Planned> draw_plan(const ConnectionSettings& c, Dice& dice) {
    std::vector<Planned> plan;
    const bool writes = c.trains && c.one_sided, uneven = writes && c.uneven;
    while (writes && plan.size() < c.messages && dice.percent(uneven ? 80 : 60))
        plan.push_back(plan.empty() || (uneven && dice.percent(60)) ? short_write(c, dice)
                                                                    : plan.back());
    const bool fills = c.trains && c.mss <= c.message_max && dice.percent(25);
    while (plan.size() < c.messages) {
        const bool again = c.trains && !plan.empty() &&
                           (plan.back().verb == Verb::kSend || plan.back().verb == Verb::kWrite);
        plan.push_back(again && dice.percent(75) ? plan.back()
                       : fills                   ? send_that_fills(c, dice)
                                                 : draw(c, dice, dice.percent(8)));
    }
    for (std::uint32_t i = 0; i < kEpilogueMessages; i++)
        plan.push_back(draw(c, dice, false));
    return plan;
}

}  // namespace sim
