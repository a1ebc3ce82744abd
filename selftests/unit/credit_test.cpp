// SPDX-License-Identifier: BSD-3-Clause
// Credits of a receive queue: the kernel's own source.
#include <gtest/gtest.h>

#include <algorithm>

extern "C" {
#include "wire/credit.h"
}

namespace {

constexpr uint32_t kRingMax = (1 << 15) - 1;  // entries of the largest ring, if all are posted
constexpr uint32_t kRingReported = 1 << 14;   // as many as its owner is told that there are
constexpr uint16_t kWithout = 1000;           // messages sent without credit since then

TEST(Credit, EveryRingIsToldOfToItsEndOrToTheMost) {
    for (const uint32_t posted : {0U, 1U, 100U, kRingReported, kRingReported + 1, kRingMax})
        for (const uint32_t at : {0U, 0x7fffU, 0x8000U, 0xffffU}) {
            const auto next = static_cast<uint16_t>(at);
            EXPECT_EQ(tqp_credit_ahead(tqp_credit_limit_of(next, posted), next),
                      static_cast<int>(std::min(posted, kRingReported)));
        }
}

// A receiver without receives said so; its sender went on without credit meanwhile.
TEST(Credit, AFullRingIsNewsToWhoHeardOfAnEmptyOne) {
    for (uint32_t first = 0; first <= 0xffff; first += 0x0fff)
        for (uint16_t sent = 0; sent <= kWithout; sent++) {
            const auto heard = static_cast<uint16_t>(first);
            const auto next = static_cast<uint16_t>(heard + sent);
            const uint16_t limit = tqp_credit_limit_of(next, kRingMax);
            ASSERT_GT(tqp_credit_ahead(limit, heard), 0) << heard << " and " << sent << " more";
            ASSERT_GT(tqp_credit_ahead(limit, next), 0);
            ASSERT_LT(tqp_credit_ahead(heard, limit), 0) << "an older one is not newer";
        }
}

}  // namespace
