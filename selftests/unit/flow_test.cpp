// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/flow_table.hpp"

namespace {

nupa::FlowKey key(std::uint32_t n) {
    nupa::FlowKey k;
    k.raw.family = 4;
    memcpy(k.raw.saddr, &n, 4);
    k.raw.daddr[0] = 10;
    k.raw.sport = static_cast<__be16>(n * 7), k.raw.dport = 99;
    return k;
}

nupa::QpContext* fake(std::uintptr_t n) { return reinterpret_cast<nupa::QpContext*>(n * 16 + 16); }

TEST(FlowKey, ReversedTwiceIsItself) {
    const nupa::FlowKey k = key(5);
    EXPECT_FALSE(k == k.reversed());
    EXPECT_TRUE(k == k.reversed().reversed());
    EXPECT_EQ(k.reversed().raw.sport, 99);
}

TEST(FlowKey, Valid) {
    nupa::FlowKey k = key(5);
    EXPECT_TRUE(k.valid());
    k.raw.saddr[4] = 1;
    EXPECT_FALSE(k.valid());
    k.raw.family = 6;
    EXPECT_TRUE(k.valid());
    k.raw.reserved[2] = 1;
    EXPECT_FALSE(k.valid());
    EXPECT_FALSE(nupa::FlowKey{}.valid());
}

TEST(FlowKey, HashDependsOnSeedAndEveryField) {
    const nupa::FlowKey k = key(5);
    EXPECT_NE(k.hash(1), k.hash(2));
    for (std::size_t i = 0; i < sizeof k.raw; i++) {
        nupa::FlowKey other = k;
        reinterpret_cast<std::uint8_t*>(&other.raw)[i] ^= 1;
        EXPECT_NE(k.hash(1), other.hash(1)) << i;
    }
}

TEST(FlowTable, HundredThousand) {
    nupa::FlowTable table(7);
    constexpr std::uint32_t kFlows = 100000;
    for (std::uint32_t i = 0; i < kFlows; i++)
        ASSERT_TRUE(table.insert(key(i), fake(i)));
    EXPECT_FALSE(table.insert(key(77), fake(1)));
    EXPECT_EQ(table.size(), kFlows);
    for (std::uint32_t i = 0; i < kFlows; i++)
        ASSERT_EQ(table.find(key(i)), fake(i));
    EXPECT_EQ(table.find(key(kFlows)), nullptr);
    for (std::uint32_t i = 0; i < kFlows; i += 2)
        ASSERT_TRUE(table.erase(key(i)));
    for (std::uint32_t i = 0; i < kFlows; i++)
        ASSERT_EQ(table.find(key(i)), i % 2 ? fake(i) : nullptr);
}

// Against std::map, few keys so that probes collide and shift.
TEST(FlowTable, RandomOperations) {
    std::mt19937 random(11);
    nupa::FlowTable table(3);
    std::map<std::uint32_t, nupa::QpContext*> mirror;
    for (int step = 0; step < 200000; step++) {
        const std::uint32_t n = random() % 48;
        switch (random() % 3) {
            case 0:
                ASSERT_EQ(table.insert(key(n), fake(n)), mirror.emplace(n, fake(n)).second);
                break;
            case 1:
                ASSERT_EQ(table.erase(key(n)), mirror.erase(n) == 1);
                break;
            default:
                ASSERT_EQ(table.find(key(n)), mirror.contains(n) ? mirror[n] : nullptr);
        }
        ASSERT_EQ(table.size(), mirror.size());
    }
    table.clear();
    EXPECT_EQ(table.find(key(1)), nullptr);
    EXPECT_EQ(table.find(nupa::FlowKey{}), nullptr);
}

// The answer of the last find() must not survive what changes it.
TEST(FlowTable, CacheIsForgotten) {
    nupa::FlowTable table(3);
    table.insert(key(9), fake(9));
    EXPECT_EQ(table.find(key(1)), nullptr);
    table.insert(key(1), fake(1));
    EXPECT_EQ(table.find(key(1)), fake(1));
    table.erase(key(1));
    EXPECT_EQ(table.find(key(1)), nullptr);
    table.find(key(9));
    EXPECT_EQ(table.find(nupa::FlowKey{}), nullptr);
}

}  // namespace
