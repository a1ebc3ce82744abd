// SPDX-License-Identifier: BSD-3-Clause
// Random arrivals against a plain array that knows what was passed up.
#include <gtest/gtest.h>

#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "engine/disorder.hpp"
#include "seed.hpp"

namespace {

using test::first_seed;

constexpr std::uint32_t kSpace = 6000;

struct Mirror {
    std::vector<bool> passed = std::vector<bool>(kSpace + 4000);
    std::uint32_t next = 0;  // lower bound of E: contiguous arrivals and host ACKs
    std::uint32_t highest = 0;

    bool any(std::uint32_t at, std::uint32_t n) const {
        for (std::uint32_t i = at; i < at + n; i++)
            if (i < next || passed[i])
                return true;
        return false;
    }
    void pass(std::uint32_t at, std::uint32_t n) {
        for (std::uint32_t i = at; i < at + n; i++)
            passed[i] = true;
        highest = std::max(highest, at + n);
    }
};

void run(std::uint64_t seed, std::uint32_t base, std::uint32_t window) {
    SCOPED_TRACE(testing::Message() << "NUPA_SEED=" << seed);
    std::mt19937_64 random(seed);
    nupa::Disorder d(base);
    Mirror m;
    std::uint32_t overflows = 0;
    while (m.next < kSpace) {
        if (random() % 16 == 0) {  // the host acknowledges: up to something passed up
            const std::uint32_t ack =
                m.next + static_cast<std::uint32_t>(random() %
                                                    (m.highest - std::min(m.highest, m.next) + 1));
            d.raise(base + ack);
            m.next = std::max(m.next, ack);
        } else {
            const bool in_order = random() % 4 == 0;
            const std::uint32_t at =
                in_order ? m.next
                         : m.next + static_cast<std::uint32_t>(random() % window) -
                               static_cast<std::uint32_t>(random() % (std::min(m.next, 50u) + 1));
            const std::uint32_t n = 1 + static_cast<std::uint32_t>(random() % 12);
            const bool may_place = !d.seen(base + at, n) && !d.resyncing();
            ASSERT_FALSE(may_place && m.any(at, n)) << at << '+' << n;  // never twice
            if (!d.resyncing() && overflows == 0)
                ASSERT_EQ(d.seen(base + at, n), m.any(at, n))
                    << at;  // and exact while nothing was forgotten
            overflows += d.record(base + at, n);
            m.pass(at, n);
        }
        while (m.passed[m.next])
            m.next++;
        ASSERT_FALSE(nupa::seq_after(d.next(), base + std::max(m.next, m.highest)));
        if (overflows == 0)
            ASSERT_EQ(d.next(), base + m.next);
        ASSERT_LE(d.blocks(), nupa::kBlocksMax);
        for (std::size_t i = 0; i < d.blocks(); i++) {
            ASSERT_TRUE(nupa::seq_before(d.block(i).begin, d.block(i).end));
            ASSERT_TRUE(nupa::seq_after(d.block(i).begin, i ? d.block(i - 1).end : d.next()));
        }
        if (m.next > d.next() - base &&
            random() % 8 == 0) {  // what E missed in a resync the host's ACK tells
            d.raise(base + m.next);
        }
    }
    d.raise(base + m.highest);
    EXPECT_FALSE(d.resyncing());
}

class Windows : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Windows, NeverTwice) {
    for (std::uint64_t seed = first_seed(); seed < first_seed() + 60; seed++)
        for (const std::uint32_t base : {0u, 0xfffff000u, 0x7ffff000u})
            run(seed, base, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Small, Windows, testing::Values(20u, 300u, 3000u));

// A segment each tick; a lost one comes again a window later.  Many are lost at once, and then some
// always: TCP is never without a hole, and placement resumes all the same.
TEST(SteadyLoss, PlacementResumes) {
    constexpr std::uint32_t kTicks = 20000, kWindow = 1000, kBytes = 100;
    constexpr std::uint32_t kBurstBegins = 2000, kBurstEnds = 2200, kPercent = 2;
    std::mt19937_64 random(first_seed());
    nupa::Disorder d(0);
    std::vector<bool> passed(kTicks);
    std::queue<std::pair<std::uint32_t, std::uint32_t>> again;  // when, which
    std::uint32_t fresh = 0, next = 0, overflows = 0, placed_late = 0;
    for (std::uint32_t tick = 0; tick < kTicks; tick++) {
        const bool repeated = !again.empty() && again.front().first <= tick;
        const std::uint32_t i = repeated ? again.front().second : fresh++;
        if (repeated)
            again.pop();
        const bool burst = !repeated && i >= kBurstBegins && i < kBurstEnds;
        if (burst ? i % 2 : random() % 100 < kPercent) {
            again.emplace(tick + kWindow, i);
            continue;
        }
        placed_late += tick > kTicks / 2 && !d.resyncing() && !d.seen(i * kBytes, kBytes) ? 1 : 0;
        overflows += d.record(i * kBytes, kBytes);
        passed[i] = true;
        while (passed[next])
            next++;
        d.raise(next * kBytes);  // the host's ACK
    }
    EXPECT_EQ(overflows, 1u);
    EXPECT_GT(placed_late, kTicks / 2 * 9 / 10);
}

}  // namespace
